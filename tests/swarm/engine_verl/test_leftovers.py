import os
import subprocess
import sys

import pytest

from swarm.server.engine_verl.leftovers import descendants, end_processes, lives
from swarm.server.engine_verl.nonces import NONCE

SLEEP = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def sleeper():
    """Starts processes that wait until their stdin closes; ends what is left."""
    started = []

    def start(nonce):
        process = subprocess.Popen(
            [sys.executable, "-c", SLEEP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, NONCE: nonce},
        )
        assert process.stdout.readline() == b"up\n"
        started.append(process)
        return process

    yield start
    for process in started:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def test_a_process_and_all_below_it_are_found(sleeper):
    child = sleeper("x")
    (below,) = descendants(child.pid)
    assert below[0] == child.pid
    assert descendants()[0][0] == os.getpid()
    assert below in descendants()
    assert lives(below)
    assert not lives((child.pid, below[1] + 1))


def test_only_processes_of_the_nonce_are_ended_and_are_gone_then(sleeper):
    mine, other = sleeper("mine"), sleeper("other")
    known = [*descendants(mine.pid), *descendants(other.pid)]
    assert end_processes([*known, (2**22 + 1, 0)], "mine") == [mine.pid]
    assert mine.wait(0) == -9
    assert other.poll() is None
    assert end_processes(known, "mine") == []


def test_another_process_under_the_same_number_is_left_alone(sleeper):
    mine = sleeper("mine")
    ((pid, started),) = descendants(mine.pid)
    assert end_processes([(pid, started - 1)], "mine") == []
    assert mine.poll() is None
