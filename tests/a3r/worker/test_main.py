import os
import re
import threading

import pytest

from a3r.core.errors import WorkspaceError
from a3r.core.presence import Presence
from a3r.testing.waiting import retry_until as until
from a3r.worker.contact import Contact
from a3r.worker.folder import Memo
from a3r.worker.identity import inventory, seat, worker_lock
from a3r.worker.job import Job, WorkerSettings
from a3r.worker.main import Asked, run_worker
from a3r.worker.processes import ProcessState, count_owned
from a3r.worker.worker import Worker


def start(lab, asked, **options):
    """``run_worker`` in a thread; returns (thread, result list)."""
    result = []

    def work():
        result.append(
            run_worker(lab.hub, lab.home, slots=1, environ=os.environ, asked=asked, **options)
        )

    thread = threading.Thread(target=work)
    thread.start()
    return thread, result


def test_two_workers_on_one_workspace_refuse(tmp_path):
    second = worker_lock(tmp_path)
    refused = pytest.raises(WorkspaceError, match=f"pid {os.getpid()}")
    with worker_lock(tmp_path) as first, refused:
        second.__enter__()
    with worker_lock(tmp_path) as again:
        assert again == first  # the same worker, restarted


def test_a_seat_is_the_folders_and_no_secret(tmp_path):
    (tmp_path / "copy").mkdir()
    assert seat(tmp_path) == seat(tmp_path / "copy" / "..") != seat(tmp_path / "copy")
    assert re.fullmatch("[0-9a-f]{16}", seat(tmp_path))
    assert inventory(tmp_path)["seat"] == seat(tmp_path)


def test_a_worker_whose_registration_is_refused_says_nothing_in_the_others_name(lab, caplog):
    lab.hub.second = True
    lab.worker()
    until(lambda: "must be a copy" in caplog.text)
    beats = lab.hub.beats
    lab.hub.second = False
    until(lambda: lab.hub.workers, 20)
    assert beats <= 1  # one that was on its way
    until(lambda: lab.hub.beats > beats)


def test_a_workspace_that_is_no_folder_is_told_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot be written"), worker_lock(tmp_path / "file"):
        pass


def test_an_idle_worker_registers_and_leaves_when_asked(lab):
    asked = Asked()
    thread, result = start(lab, asked)
    worker = until(lambda: next(iter(lab.hub.workers.values()), None))
    assert (worker.slots, worker.pid) == (1, os.getpid())
    assert worker.inventory["cpus"] >= 1
    lab.hub.epoch = "epoch-2"  # another daemon, which knows nobody
    lab.hub.workers.clear()
    until(lambda: lab.hub.workers)
    asked.signalled(15, None)
    thread.join(15)
    assert result == [True]


@pytest.mark.timeout(90)
def test_the_first_signal_leaves_attempts_running_and_two_end_them(lab):
    attempt = lab.queue(lab.blueprint(trouble={"0": "hang"}))
    asked = Asked()
    thread, result = start(lab, asked)
    until(lambda: (lab.folder().path / "work" / "client" / "misbehaved.0").exists(), 30)
    asked.signalled(15, None)
    thread.join(20)
    assert result == [True]
    assert lab.folder().latest("server").state() is ProcessState.RUNNING
    assert attempt.finish is None

    asked = Asked()
    thread, result = start(lab, asked)
    until(lambda: "adopted" in attempt.kinds())
    asked.signalled(2, None)
    asked.signalled(2, None)
    thread.join(30)
    assert result == [True]
    assert attempt.finish.outcome == "cancelled"
    assert count_owned(lab.nonce) == 0


def test_an_attempt_whose_end_cannot_be_written_yet_is_ended_when_it_can(lab):
    worker = Worker(WorkerSettings(lab.home, "w-1", "host", 1, 1, tick_s=0.01), lab.hub, None, {})

    class Runner:
        """Every tick fails on a full disk; so do the first tries to note the end."""

        spec = lab.spec(lab.blueprint())
        memo = Memo(phase="running")
        ticks, refusals = 0, 2

        def tick(self):
            self.ticks += 1
            if self.memo.phase == "stopping":
                return True
            raise OSError(28, "No space left on device")

        def give_up(self, over):
            if self.refusals:
                self.refusals -= 1
                raise OSError(28, "No space left on device")
            self.memo.phase = "stopping"

        def close(self):
            """Nothing is open."""

    runner = Runner()
    worker._run(Job(runner, None, 1, Contact("sending"), Presence(lab.home, same_file=False)))
    assert runner.memo.phase == "stopping"
    assert runner.ticks == 13
