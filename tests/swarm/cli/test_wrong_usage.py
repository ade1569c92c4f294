"""With ``--json`` there is one document on stdout, also when the command line itself is wrong."""

import json
import subprocess
import sys

import pytest


def swarm(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from swarm.cli import main; main()", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "args",
    [
        ("status", "--json", "--timeout-s", "soon"),
        ("status", "--json", "--no-such-option"),
        ("config", "check", "--json"),
        ("log", "--json", "--to", "nowhere"),
        ("watch", "--json", "--every-s", "0"),
        ("nothing", "--json"),
        ("status", "--json", "--server", "http://["),
        ("status", "--json", "--server", "http://127.0.0.1:99999"),
    ],
)
def test_wrong_usage_is_one_document_and_exit_code_2(args, tmp_path, monkeypatch):
    monkeypatch.setenv("SWARM_TOKEN", "t")
    done = swarm(*args)
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["message"]
    assert error["hint"]
    assert "Traceback" not in done.stderr


def test_wrong_usage_without_json_goes_to_a_person():
    done = swarm("status", "--no-such-option")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such option" in done.stderr.lower()


def test_a_program_of_exec_may_have_a_json_option_of_its_own():
    done = swarm("exec", "--no-such-option", "--", "true", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
