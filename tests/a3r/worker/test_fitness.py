"""A host that cannot take work says so: a full disk, a workspace that was deleted, GPUs that somebody still uses."""

import os
import shutil
import threading

import pytest

from a3r.core.presence import LOOKS, Presence
from a3r.core.types import FailureClass
from a3r.testing.fake_gpus import FakeGpus
from a3r.testing.waiting import retry_until as until
from a3r.worker.fitness import LEAST_FREE_BYTES, disk_trouble
from a3r.worker.gpus import GpuOffice
from a3r.worker.job import WorkerSettings
from a3r.worker.main import Asked, run_worker
from a3r.worker.processes import count_owned
from a3r.worker.worker import Worker


def test_a_full_disk_and_one_that_does_not_answer_are_told_in_words(tmp_path):
    assert disk_trouble(tmp_path, lambda _: LEAST_FREE_BYTES) == ""
    assert "is full (3 MiB free)" in disk_trouble(tmp_path, lambda _: 3 << 20)
    assert "cannot be used: No such file" in disk_trouble(tmp_path / "gone")


def test_a_worker_with_a_full_disk_tells_the_hub_and_claims_again_when_there_is_room(lab):
    attempt = lab.queue(lab.blueprint())
    free = [0]
    settings = WorkerSettings(
        lab.home, "w-1", "host", os.getpid(), 1, tick_s=0.15, free_bytes=lambda _: free[0]
    )
    worker = Worker(settings, lab.hub, None, os.environ)
    lab.workers.append(worker)
    worker.start()
    until(lambda: "is full" in lab.hub.troubles.get("w-1", ""))
    assert lab.hub.claims == []
    free[0] = LEAST_FREE_BYTES
    until(lambda: worker.attempts() == [attempt.spec.attempt_id])
    until(lambda: lab.hub.troubles["w-1"] == "")


def test_an_attempt_that_cannot_be_put_on_file_is_given_back_with_the_reason(lab):
    attempt = lab.queue(lab.blueprint())
    (lab.home / "runs").write_text("no folder")
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.ENVIRONMENT)
    assert "could not put it on file" in report.reason


def test_a_file_is_gone_after_some_looks_or_when_another_one_stands_there(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    presence = Presence(path)
    assert not any(presence.gone() for _ in range(LOOKS * 2))
    path.rename(tmp_path / "away")
    assert [presence.gone() for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]
    (tmp_path / "away").rename(path)
    assert not presence.gone()
    by_name = Presence(path, same_file=False)
    path.rename(tmp_path / "away")
    path.touch()
    assert [presence.gone() for _ in range(LOOKS)][-1]
    assert by_name.there()
    path.unlink()
    assert by_name.there() is False


@pytest.mark.timeout(90)
def test_a_worker_whose_workspace_was_deleted_ends_its_processes_tells_the_hub_and_leaves(lab):
    attempt = lab.queue(lab.blueprint(trouble={"0": "hang"}))
    result = []
    options = {"slots": 1, "environ": os.environ, "asked": Asked()}
    thread = threading.Thread(
        target=lambda: result.append(run_worker(lab.hub, lab.home, **options))
    )
    thread.start()
    until(lambda: (lab.folder().path / "work" / "client" / "misbehaved.0").exists(), 60)
    shutil.rmtree(lab.home, ignore_errors=True)
    thread.join(60)
    assert result == [False]
    assert attempt.finish.failure is FailureClass.HOST_LOST
    assert "was deleted under the worker" in attempt.finish.reason
    assert count_owned(lab.nonce) == 0


def test_an_attempt_whose_folder_was_deleted_ends_and_the_hub_hears_why(lab):
    attempt = lab.queue(lab.blueprint(trouble={"0": "hang"}))
    worker = lab.worker()
    until(lambda: (lab.folder().path / "work" / "client" / "misbehaved.0").exists(), 60)
    folder = lab.folder().path
    folder.rename(lab.home / "away")
    report = lab.finished(attempt)
    assert report.failure is FailureClass.HOST_LOST
    assert f"its folder {str(folder)!r} was deleted" in report.reason
    assert count_owned(lab.nonce) == 0
    until(lambda: worker.attempts() == [])


def test_what_follows_from_a_deleted_folder_is_not_told_as_the_attempts_own_fault(lab):
    attempt = lab.queue(lab.blueprint())
    worker = lab.worker()
    until(lambda: worker.attempts() == [attempt.spec.attempt_id])
    lab.hub.away = True  # it can be told of nothing until the folder is gone
    until(lambda: lab.folder().finish() is not None, 60)
    lab.folder().path.rename(lab.home / "away")
    lab.hub.away = False
    assert lab.finished(attempt).failure is FailureClass.HOST_LOST


@pytest.mark.parametrize(("left", "kind"), [(False, "gpus_returned"), (True, "gpus_not_free")])
def test_after_an_attempts_end_its_gpus_are_measured(lab, left, kind):
    gpus = FakeGpus(2)
    attempt = lab.queue(lab.blueprint(trouble={"0": "import"}), gpus=[1])
    if left:
        gpus.use(1, 4242, 9000, "somebody")
    lab.worker(gpus=GpuOffice(gpus))
    lab.finished(attempt)
    [event] = [e for e in attempt.events.values() if e.kind.startswith("gpus_")]
    assert (event.kind, event.data["gpus"]) == (kind, "1")
    assert event.data["in_use"] == ("1" if left else "")
