"""Orders to the far end: what goes over the wire, and what a host that can not obey is told as."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from a3r.adapters.ssh import Ssh
from a3r.adapters.ssh_errors import refusal
from a3r.adapters.ssh_keys import HostKey
from a3r.core.errors import HostError
from a3r.hosts import far_end
from a3r.hosts.calling import NO_PYTHON, answers, command, program
from a3r.hosts.options import HostOptions, check_name, default_name


def obey(action: str, spec: dict[str, Any], python: str = sys.executable) -> dict[str, Any]:
    """What a login shell does with the order."""
    done = subprocess.run(
        ["sh", "-c", f"echo 'Welcome!'; {command(python)}"],
        input=program(action, spec),
        capture_output=True,
        check=True,
        timeout=60,
    )
    (answer,) = answers(done.stdout.splitlines())
    return answer


def test_the_program_goes_over_stdin_and_a_greeting_does_not_confuse_its_answer(
    tmp_path: Path,
) -> None:
    answer = obey("probe", {"folder": str(tmp_path / "ein 'Ordner' ☕"), "worker_python": ""})
    assert answer["ok"]
    assert answer["folder"].endswith("ein 'Ordner' ☕")
    assert answer["worker"] == {"alive": False, "pid": 0, "id": ""}


def test_a_refusal_is_an_answer_with_a_hint(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    answer = obey("install", {"folder": str(folder), "python": "x"})
    assert not answer["ok"]
    assert "too long" in answer["error"]
    assert "--folder" in answer["hint"]


def test_a_host_without_a_python_is_told_by_its_exit_code() -> None:
    done = subprocess.run(
        ["sh", "-c", command("/no such/python")], input=b"", capture_output=True, timeout=60
    )
    assert done.returncode == NO_PYTHON


def test_secrets_go_to_private_files_and_the_workers_command_names_only_the_file(
    tmp_path: Path,
) -> None:
    answer = obey("configure", {"folder": str(tmp_path), "token": "hush", "ca_pem": ""})
    assert answer["ok"]
    file = tmp_path / "worker.token"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("hush", 0o600)
    options = HostOptions(folder=str(tmp_path), python="/p", gpus="0-3", slots=2)
    argv = far_end.worker_argv(tmp_path, options.keep_spec("gpu1", work=True))
    assert argv[argv.index("--hub") + 1] == f"unix:{tmp_path}/hub.sock"
    assert argv[argv.index("--gpus") + 1] == "0-3"
    assert "hush" not in json.dumps(argv)
    door = HostOptions(folder="/f", python="/p", hub_url="https://hub:1", has_ca=True)
    argv = far_end.worker_argv(Path("/f"), door.keep_spec("gpu1", work=True))
    assert argv[argv.index("--hub") + 1] == "https://hub:1"
    assert argv[argv.index("--ca-file") + 1] == "/f/hub-ca.pem"


def test_as_a_unit_of_systemd_a_worker_that_ends_takes_no_attempt_with_it(tmp_path: Path) -> None:
    argv = far_end.unit_argv("a3r-worker-gpu1-1", tmp_path / "log %h", ["python", "-m", "a3r"])
    assert "--property=KillMode=process" in argv
    assert "--property=OOMPolicy=continue" in argv
    shell = argv[argv.index("--") + 1 :]
    subprocess.run([*shell[:4], "echo", "a b"], check=True, timeout=30)
    assert (tmp_path / "log %h").read_text() == "a b\n"


def test_a_stop_where_nothing_is_left_is_fine(tmp_path: Path) -> None:
    gone = obey("stop", {"folder": str(tmp_path / "gone"), "attempts": True, "delete": True})
    assert gone["ended"]
    here = obey("stop", {"folder": str(tmp_path), "delete": True})
    assert here["deleted"]
    assert not tmp_path.exists()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("No ED25519 host key is known for gpu1\nHost key verification failed.", "unknown_key"),
        (
            "@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\nHost key verification",
            "changed_key",
        ),
        ("me@gpu1: Permission denied (publickey).", "auth"),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "unreachable"),
        ("Timeout, server gpu1 not responding.", "unreachable"),
        ("Error: remote port forwarding failed for listen path /x", "forward"),
        ("something new", "other"),
        ("", "other"),
    ],
)
def test_what_ssh_says_becomes_an_error_with_a_way_out(said: str, kind: str) -> None:
    error = refusal("me@gpu1", said)
    assert error.details["kind"] == kind
    assert error.hint


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "me@gpu1 -v", "", "a;b", "me@-x;y"])
def test_what_ssh_would_take_for_an_option_is_no_address(address: str) -> None:
    with pytest.raises(HostError):
        Ssh(address, Path("/known"))


def test_the_command_line_of_ssh_asks_nothing_and_trusts_only_known_keys() -> None:
    argv = Ssh("me@gpu1", Path('/a "b"/known'), port=2222, identity="/key").argv("true")
    assert argv[:5] == ["ssh", "-p", "2222", "-i", "/key"]
    assert argv[-3:] == ["--", "me@gpu1", "true"]
    for wanted in ("BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no"):
        assert wanted in argv
    assert any(part.endswith('"/a \\"b\\"/known"') for part in argv)


def test_a_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    told = subprocess.run(
        ["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, text=True, check=True
    )
    line = "gpu1 " + (tmp_path / "key.pub").read_text()
    assert HostKey(line).fingerprint == told.stdout.split()[1]
    assert HostKey(line).kind == "ssh-ed25519"


@pytest.mark.parametrize(
    ("address", "name"),
    [("me@gpu1.example.org", "gpu1"), ("gpu1", "gpu1"), ("me@10.0.0.7", "10.0.0.7")],
)
def test_a_host_is_named_by_its_address(address: str, name: str) -> None:
    assert check_name(default_name(address)) == name


def test_a_name_that_would_be_no_file_is_refused() -> None:
    with pytest.raises(HostError):
        check_name("../x")
