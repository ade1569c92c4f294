import sys

import pytest

from a3r.blueprints.model import Limits
from a3r.core.types import FailureClass
from a3r.testing.waiting import retry_until as until
from a3r.worker.events import EventLog
from a3r.worker.folder import AttemptFolder, Memo
from a3r.worker.processes import ProcessState
from a3r.worker.repair import AttemptOver, Repair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Clock:
    at = 1000.0

    def time(self):
        return self.at

    monotonic = time


@pytest.fixture
def repair(bench):
    folder = AttemptFolder(bench.folder)
    limits = Limits(max_client_restarts=1)
    return Repair(folder, limits, EventLog(folder, Clock()), Clock())


def broken(bench, words, name="client.1", code=1):
    """A process that said ``words`` and ended."""
    process = bench.start(f"import sys; print({words!r}); sys.exit({code})", name=name)
    until(lambda: process.state() is ProcessState.EXITED)
    return process


def test_a_full_disk_blocks_waits_ever_longer_and_costs_no_restart(bench, repair):
    memo = Memo()
    words = "OSError: [Errno 28] No space left on device"
    for number, wait_s in ((1, 30), (2, 60), (3, 120)):
        repair.ended(memo, broken(bench, words, f"client.{number}"))
        assert memo.not_before["client"] == 1000 + wait_s
    assert memo.blocked.startswith("disk_full: Make room on the disk.")
    assert memo.blocked_role == "client"
    repair.ended(memo, broken(bench, "ValueError: x", "client.4"))  # the first that counts
    with pytest.raises(AttemptOver) as over:
        repair.ended(memo, broken(bench, "ValueError: x", "client.5"))
    assert (over.value.outcome, over.value.failure) == ("failed", FailureClass.CLIENT_CRASH)
    repair.unblock(memo)
    assert (memo.blocked, memo.progress_at) == ("", 1000.0)
    kinds = [e.kind for e in repair.folder.events()]
    assert (kinds.count("blocked"), kinds.count("unblocked")) == (3, 1)
    assert kinds.count("deviation") == 1


def test_an_end_is_dealt_with_once(bench, repair):
    memo, process = Memo(), broken(bench, "ValueError: x")
    repair.ended(memo, process)
    repair.ended(memo, process)
    assert [e.kind for e in repair.folder.events()].count("process_exited") == 1
    assert memo.handled == ["client.1"]


def test_a_taken_port_is_given_up_for_any_free_one(bench, repair):
    memo = Memo(port=8377)
    words = "swarm serve: Cannot listen on 127.0.0.1:8377: Address already in use."
    repair.ended(memo, broken(bench, words, "server.1", 2))
    assert memo.port is None
    assert memo.not_before["server"] == 1000.5


def test_the_time_of_a_block_is_measured_from_its_first_look_to_its_end(bench, repair):
    memo = Memo(started_at=repair.clock.time())
    for number in (1, 2):
        repair.ended(memo, broken(bench, "insufficient_quota", f"client.{number}"))
        repair.clock.at += 20
    assert memo.blocked
    repair.unblock(memo)
    assert (memo.blocked, memo.waited_s) == ("", 40)
