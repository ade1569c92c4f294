"""What a pool's job runs before it becomes the worker, and the guard that outlives the worker."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from a3r.core.ports import GpuReading
from a3r.testing.waiting import retry_until
from a3r.worker.allotted import allotted
from a3r.worker.enlist import NotEnlisted, enlist
from a3r.worker.pool_guard import clear_up
from a3r.worker.supervisor import NONCE, write_json

SLEEP = "import time; time.sleep(600)"


class TicketOffice(BaseHTTPRequestHandler):
    """Gives a token for the ticket ``good``."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        good = self.headers["Authorization"] == "Bearer good" and self.path.endswith("/enlist")
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(b'{"token": "secret"}' if good else b'{"error": {"message": "spent"}}')

    def log_message(self, *_args: Any) -> None:
        """Stay silent."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), TicketOffice)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "Kratz ü"
    folder.mkdir()
    return folder


def job_command(hub: str, scratch: Path, then: str) -> list[str]:
    """A process that enlists and then becomes ``then`` in place of the worker, whose workspace it prints."""
    program = (
        "import os, sys; from a3r.worker.enlist import enlist; "
        f"argv = enlist({hub!r}, 'pj-1', {str(scratch)!r}, [], os.environ); "
        "print(argv[argv.index('--workspace') + 1], flush=True); "
        f"os.execv(sys.executable, [sys.executable, '-c', {then!r}])"
    )
    return [sys.executable, "-c", program]


def start(hub: str, scratch: Path, then: str = SLEEP) -> tuple[subprocess.Popen[str], Path]:
    worker = subprocess.Popen(
        job_command(hub, scratch, then),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "A3R_POOL_TICKET": "good"},
    )
    assert worker.stdout is not None
    home = Path(worker.stdout.readline().strip())
    worker.stdout.close()
    return worker, home


def owned_process(home: Path, nonce: str) -> subprocess.Popen[bytes]:
    """A process of an attempt, as a supervisor keeps it alive: in a session of its own."""
    folder = home / "runs" / "at-1"
    folder.mkdir(parents=True)
    write_json(folder / "attempt.json", {"nonce": nonce})
    return subprocess.Popen(
        [sys.executable, "-c", SLEEP], env={**os.environ, NONCE: nonce}, start_new_session=True
    )


def test_a_ticket_becomes_the_workers_command_with_its_token_in_a_private_file(
    hub: str, scratch: Path
) -> None:
    environ = {"A3R_POOL_TICKET": "good", "PATH": "/bin"}
    argv = enlist(hub, "pj-1", str(scratch), ["--pool", "p", "--slots", "2"], environ)
    assert "A3R_POOL_TICKET" not in environ
    assert argv[1:7] == ["-m", "a3r", "worker", "start", "--hub", hub]
    assert argv[-6:] == ["--pool-job", "pj-1", "--pool", "p", "--slots", "2"]
    assert "secret" not in " ".join(argv)
    file = Path(argv[argv.index("--token-file") + 1])
    assert file.read_text() == "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("environ", [{}, {"A3R_POOL_TICKET": "spent"}])
def test_without_a_ticket_that_is_good_nothing_is_started_and_nothing_left(
    hub: str, scratch: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(NotEnlisted):
        enlist(hub, "pj-1", str(scratch), [], dict(environ))
    assert list(scratch.iterdir()) == []


def test_a_killed_workers_attempts_are_ended_by_the_guard(hub: str, scratch: Path) -> None:
    worker, home = start(hub, scratch)
    left = owned_process(home, "0123456789abcdef")
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        worker.kill()
        worker.wait()
        assert left.wait(timeout=30) in (-signal.SIGTERM, -signal.SIGKILL)
        assert stranger.poll() is None
        # Its evidence was never delivered: it stays, without the token.
        retry_until(lambda: not (home / "worker.token").exists())
        assert (home / "runs" / "at-1").is_dir()
    finally:
        stranger.kill()
        stranger.wait()


def test_the_workspace_of_a_worker_that_left_nothing_undelivered_is_cleared_away(
    hub: str, scratch: Path
) -> None:
    worker, home = start(hub, scratch, "")
    worker.wait()
    retry_until(lambda: not home.exists())


def test_the_guard_is_no_descendant_of_the_job(hub: str, scratch: Path) -> None:
    import psutil

    worker, home = start(hub, scratch)
    try:
        assert psutil.Process(worker.pid).children(recursive=True) == []
    finally:
        worker.kill()
        worker.wait()
        retry_until(lambda: not home.exists())


def test_a_workspace_is_kept_for_as_long_as_one_attempt_is_undelivered(tmp_path: Path) -> None:
    for name, sent in (("at-1", {"finished": True}), ("at-2", {"finished": False})):
        folder = tmp_path / "home" / "runs" / name
        folder.mkdir(parents=True)
        write_json(folder / "attempt.json", {"nonce": ""})
        write_json(folder / "uplink.json", sent)
    assert clear_up(tmp_path / "home") == 0
    assert (tmp_path / "home").is_dir()
    write_json(tmp_path / "home" / "runs" / "at-2" / "uplink.json", {"refused": "lost"})
    clear_up(tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, None),
        ("", []),
        ("1,0", [1, 0]),
        ("GPU-bb", [1]),
        ("0,-1,1", [0]),
        ("7", []),
    ],
)
def test_a_job_uses_only_the_gpus_that_the_engine_gave_it(
    visible: str | None, expected: list[int] | None
) -> None:
    readings = [GpuReading(n, f"GPU-{c}{c}", "card", 80_000, 0) for n, c in enumerate("ab")]
    assert allotted(visible, readings) == expected
