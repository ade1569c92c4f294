"""Hosts over SSH, for real: an sshd on loopback, a daemon, a worker that it starts, a link that is blocked and comes back."""

import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from a3r.core.workspace import Workspace
from a3r.hosts import far_end
from a3r.testing.sshd import Sshd, Wire, missing
from a3r.testing.waiting import retry_until
from swarm.testing.chaos.processes import free_port

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"needs {', '.join(missing())}"),
    pytest.mark.timeout(170),
]
LONG_S = 60.0


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    folder = tmp_path / "ssh ü"
    folder.mkdir()
    with Sshd(folder).running() as one:
        yield one


@pytest.fixture
def far() -> Iterator[Path]:
    """The host's folder: short, because a Unix socket lies in it. A worker that was left there is ended."""
    folder = Path(tempfile.mkdtemp(prefix="a3r h ", dir="/tmp"))
    yield folder
    (folder / "stopped").touch()
    far_end.end_worker(folder, with_attempts=True, timeout_s=30)
    shutil.rmtree(folder)


@pytest.fixture
def add(a3r: Any, workspace: Workspace, sshd: Sshd, far: Path) -> Callable[..., Any]:
    """``a3r host add far``, with the way to the test's own sshd."""

    def run(*more: str) -> Any:
        way = ["--ssh-config", str(sshd.config), "--name", "gpu1", "--folder", str(far)]
        return a3r("host", "add", "far", *way, "--python", sys.executable, *more)

    return run


def shown(a3r: Any) -> dict[str, Any]:
    (host,) = a3r("host", "list", "--json").json["hosts"]
    return host


def test_a_host_whose_key_nobody_vouched_for_is_refused_with_its_fingerprint(
    add: Any, sshd: Sshd, workspace: Workspace, far: Path
) -> None:
    refused = add("--json")
    assert refused.code == 1
    error = refused.json["error"]
    assert sshd.fingerprint in error["message"]
    assert f"--accept-key {sshd.fingerprint}" in error["hint"]
    other = add("--accept-key", "SHA256:AAAA")
    assert other.code == 1
    assert "not 'SHA256:AAAA'" in other.err
    assert not (workspace.daemon / "known_hosts").exists()
    assert list(far.iterdir()) == []


@pytest.mark.long
def test_a_host_is_added_once_serves_drains_and_leaves(
    a3r: Any, add: Any, sshd: Sshd, far: Path, workspace: Workspace
) -> None:
    first = add("--accept-key", sshd.fingerprint, "--slots", "3", "--json")
    assert first.code == 0, first.err
    body = first.json
    assert body["link"] == "up"
    assert body["worker"]["slots"] == 3
    assert body["changes"] == ["gave it a token of its own", "filed the host"]
    token = far / "worker.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    secret = token.read_text()
    pid = far_end.worker(far)["pid"]
    assert not any(secret in part for p in psutil.process_iter() for part in _argv(p))

    again = add("--slots", "3", "--json")
    assert again.code == 0, again.err
    assert again.json["changes"] == []
    assert far_end.worker(far)["pid"] == pid
    assert token.read_text() == secret

    checked = a3r("host", "check", "gpu1", "--no-episode", "--json")
    found = {c["name"]: (c["state"], c["detail"]) for c in checked.json["checks"]}
    assert all(
        found[n][0] == "ok" for n in ("ssh", "a3r", "disk", "clock", "hub", "link", "worker")
    )
    assert "the very one that runs here" in found["a3r"][1]
    assert found["debug episode"] == ("not checked", "--no-episode")

    assert a3r("host", "drain", "gpu1").code == 0
    assert shown(a3r)["worker"]["state"] == "draining"
    assert a3r("host", "resume", "gpu1").code == 0

    left = a3r("host", "remove", "gpu1", "--delete-files")
    assert left.code == 0, left.err
    assert a3r("host", "list", "--json").json == {"hosts": []}
    assert not (far / "worker.token").exists()
    assert not psutil.pid_exists(pid) or _argv(psutil.Process(pid)) == []
    far.mkdir(exist_ok=True)


@pytest.mark.long
def test_the_link_starts_a_killed_worker_again_and_a_changed_one_anew(
    a3r: Any, add: Any, sshd: Sshd, far: Path
) -> None:
    assert add("--accept-key", sshd.fingerprint, "--slots", "1").code == 0
    before = far_end.worker(far)
    os.kill(before["pid"], signal.SIGKILL)
    retry_until(lambda: far_end.worker(far)["pid"] not in (0, before["pid"]), LONG_S)
    assert far_end.worker(far)["id"] == before["id"]
    changed = add("--slots", "2", "--json")
    assert changed.code == 0, changed.err
    assert changed.json["changes"] == ["brought its entry up to date"]
    retry_until(lambda: shown(a3r)["worker"]["slots"] == 2, LONG_S)


@pytest.mark.long
def test_a_blocked_link_harms_no_worker_and_comes_back_by_itself(
    a3r: Any, add: Any, sshd: Sshd, far: Path
) -> None:
    wire = Wire(sshd.port)
    sshd.reach(wire.port)
    assert add("--accept-key", sshd.fingerprint, "--alive-s", "1").code == 0
    pid = far_end.worker(far)["pid"]
    wire.block()
    retry_until(lambda: shown(a3r)["link"] == "broken", LONG_S)
    assert far_end.worker(far)["pid"] == pid
    silent_s = shown(a3r)["worker"]["silent_s"]
    retry_until(lambda: shown(a3r)["worker"]["silent_s"] > silent_s, LONG_S)
    wire.unblock()
    retry_until(lambda: shown(a3r)["link"] == "up", LONG_S)
    retry_until(lambda: shown(a3r)["worker"]["silent_s"] < 1.0, LONG_S)
    assert far_end.worker(far)["pid"] == pid
    wire.close()


@pytest.mark.long
def test_a_killed_daemon_leaves_no_ssh_behind_and_the_next_one_finds_the_worker(
    a3r: Any, add: Any, sshd: Sshd, far: Path, workspace: Workspace, end_daemons: Any
) -> None:
    assert add("--accept-key", sshd.fingerprint).code == 0
    pid = far_end.worker(far)["pid"]
    assert _links(sshd)
    end_daemons(workspace)
    retry_until(lambda: not _links(sshd), LONG_S)
    assert far_end.worker(far)["pid"] == pid
    retry_until(lambda: shown(a3r)["link"] == "up", LONG_S)
    retry_until(lambda: shown(a3r)["worker"]["silent_s"] < 1.0, LONG_S)
    assert far_end.worker(far)["pid"] == pid


@pytest.mark.long
def test_a_host_that_can_not_be_reached_any_more_is_forgotten_by_force(
    a3r: Any, add: Any, sshd: Sshd, far: Path
) -> None:
    assert add("--accept-key", sshd.fingerprint, "--no-wait").code == 0
    sshd.config.write_text("Host far\n  HostName 127.0.0.1\n  Port 1\n")
    gone = a3r("host", "remove", "gpu1", "--force")
    assert gone.code == 0, gone.err
    assert "could not be told" in gone.out
    assert str(far) in gone.out
    assert a3r("host", "list", "--json").json == {"hosts": []}
    missing_host = a3r("host", "remove", "gpu1")
    assert missing_host.code == 2


@pytest.mark.long
def test_a_host_that_dials_the_hub_itself_comes_in_through_the_door(
    a3r: Any,
    add: Any,
    sshd: Sshd,
    far: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair = authority.issue_cert("127.0.0.1")
    pair.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    port = free_port()
    monkeypatch.setenv("A3R_WORKERS_LISTEN", f"127.0.0.1:{port}")
    monkeypatch.setenv("A3R_WORKERS_TLS_CERT", str(tmp_path / "both.pem"))
    monkeypatch.setenv("A3R_WORKERS_TLS_KEY", str(tmp_path / "both.pem"))
    door = ["--hub-url", f"https://127.0.0.1:{port}", "--ca-file", str(tmp_path / "ca.pem")]
    made = add("--accept-key", sshd.fingerprint, *door, "--json")
    assert made.code == 0, made.err
    assert made.json["worker"] is not None
    assert not (far / "hub.sock").exists()
    checked = a3r("host", "check", "gpu1", "--no-episode", "--json")
    (found,) = [c for c in checked.json["checks"] if c["name"] == "hub"]
    assert found["state"] == "ok"
    assert "https://" in found["detail"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gpus", "3-0"], "--gpus"),
        (["--hub-url", "hub:8443"], "no address"),
        (["--identity", "nowhere"], "no file"),
        (["--ca-file", "x.pem"], "--hub-url"),
    ],
)
def test_options_that_can_not_be_meant_are_refused_before_anything_happens(
    add: Any, more: list[str], said: str
) -> None:
    refused = add(*more)
    assert refused.code == 2
    assert said in refused.err


def _argv(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _links(sshd: Sshd) -> list[psutil.Process]:
    return [
        p for p in psutil.process_iter() if _argv(p)[:1] == ["ssh"] and str(sshd.config) in _argv(p)
    ]
