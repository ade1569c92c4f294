"""The end of a process wakes whoever waits for it; so does a call. A process that is somebody else's by now is not waited for."""

import os
import signal
import sys
import threading

import pytest

from a3r.testing.waiting import retry_until as until
from a3r.worker.endings import Endings

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(60),
]
FOR_EVER = 3600.0


@pytest.fixture
def endings():
    found = Endings()
    yield found
    found.close()
    found.close()
    found.wake()  # nobody listens: nothing happens


def test_a_crash_is_told_at_once_and_only_once(bench, endings):
    process = bench.start("import time; time.sleep(600)")
    child = bench.child(process)["child"]["pid"]
    supervisor = process.supervisor()
    assert supervisor is not None
    assert not endings.wait([supervisor], 0)
    os.kill(child, signal.SIGKILL)
    assert endings.wait([supervisor], FOR_EVER)
    assert process.exit().signal == "SIGKILL"
    until(lambda: process.supervisor() is None)
    assert not endings.wait([supervisor], 0)
    assert not endings.wait([], 0)


def test_a_call_from_another_thread_wakes_it(bench, endings):
    process = bench.start("import time; time.sleep(600)")
    bench.child(process)
    threading.Timer(0.05, endings.wake).start()
    assert endings.wait([process.supervisor()], FOR_EVER)
    assert not endings.wait([process.supervisor()], 0)
    process.terminate()
    bench.ended(process)


def test_a_pid_that_is_another_process_now_is_not_waited_for(endings):
    assert not endings.wait([(os.getpid(), 1)], 0)
    assert not endings.wait([(2**22 + 5, 1)], 0)
