import json
import os
import subprocess
import sys

import pytest

from swarm.server.engine_verl.nonces import NONCE, state_nonce
from swarm.server.engine_verl.reaping import (
    Spared,
    reap_node,
    reap_processes,
    this_machine,
)
from swarm.server.serve import locked

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
        "from swarm.server.engine_verl.reaping import reap_processes\n"
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


def test_processes_are_spared_on_their_own_machine_only():
    ours, elsewhere = started("nonce-e"), started("nonce-e")
    try:
        assert (
            reap_node("nonce-e", Spared(this_machine(), frozenset({ours.pid, elsewhere.pid}))) == []
        )
        spared = Spared("another boot/pid:[1]", frozenset({ours.pid}))
        assert sorted(reap_node("nonce-e", spared)) == sorted([ours.pid, elsewhere.pid])
    finally:
        for process in (ours, elsewhere):
            process.kill()
            process.wait(10)
            process.stdout.close()


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "swarm.cli", "reap", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_command_reaps_what_a_state_directory_left_behind(tmp_path):
    left = started(state_nonce(tmp_path))
    try:
        done = command("--state-dir", str(tmp_path))
        told = json.loads(done.stdout)
        assert (done.returncode, told["processes"]) == (0, {"here": [left.pid]})
        assert left.wait(10) == -9
        assert json.loads(command("--state-dir", str(tmp_path)).stdout)["processes"] == {}
    finally:
        left.kill()
        left.stdout.close()


def test_the_engine_of_a_server_that_runs_is_not_reaped(tmp_path):
    alive = started(state_nonce(tmp_path))
    try:
        with locked(tmp_path):
            done = command("--state-dir", str(tmp_path))
        assert done.returncode != 0
        assert "in use by another server" in json.loads(done.stdout)["error"]["message"]
        assert alive.poll() is None
    finally:
        alive.kill()
        alive.wait(10)
        alive.stdout.close()


@pytest.mark.parametrize("arguments", [(), ("--nonce", ""), ("--nonce", "a", "--state-dir", ".")])
def test_the_command_wants_to_know_whose_engine(arguments):
    done = command(*arguments)
    assert done.returncode == 2
    assert "--state-dir or --nonce" in json.loads(done.stdout)["error"]["hint"]
