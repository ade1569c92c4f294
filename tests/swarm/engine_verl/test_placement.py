import os
import subprocess
import sys

from swarm.server.engine_verl.placement import NONCE, nonce_of, reap_processes

SLEEP = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]


def started(nonce):
    process = subprocess.Popen(
        SLEEP, env={**os.environ, NONCE: nonce}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    return process


def test_only_processes_of_the_nonce_are_reaped(tmp_path):
    ours, spared, others = started("nonce-a"), started("nonce-a"), started("nonce-b")
    try:
        assert reap_processes("nonce-a", spare=[spared.pid]) == [ours.pid]
        assert ours.wait(10) == -9
        assert spared.poll() is None
        assert others.poll() is None
        assert reap_processes("nonce-c") == []
    finally:
        for process in (ours, spared, others):
            process.kill()
            process.wait(10)
            process.stdout.close()


def test_a_process_does_not_reap_itself_nor_its_parents():
    code = (
        "from swarm.server.engine_verl.placement import reap_processes\n"
        "assert reap_processes('nonce-d') == []; print('alive')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, NONCE: "nonce-d"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "alive\n"


def test_without_a_front_a_nonce_is_drawn():
    assert nonce_of({NONCE: "x"}) == "x"
    assert nonce_of({}) != nonce_of({})
