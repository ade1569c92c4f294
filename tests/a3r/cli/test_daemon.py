"""The daemon as a process: started on demand, killed, refused a second time, told apart from strangers."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from a3r.cli.daemon.lock import holder, is_locked
from a3r.cli.daemon.starting import ensure_daemon, find_daemon, spawn_daemon
from a3r.cli.doctor_checks import database, guarded
from a3r.core.errors import StoreError
from a3r.core.workspace import Workspace
from a3r.hub.ready import read_ready
from a3r.hub.tokens import HubTokens
from a3r.testing.waiting import retry_until


def test_a_killed_daemon_is_started_again_and_everything_goes_on(
    a3r: Any, workspace: Workspace, goal: Path
) -> None:
    first = a3r("campaign", "start", str(goal), "--no-watch", "--json")
    assert first.code == 0
    campaign = first.json["campaign"]["id"]
    before = read_ready(workspace.daemon)
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    retry_until(lambda: not is_locked(workspace.daemon))
    listed = a3r("campaign", "list", "--json")
    assert [c["id"] for c in listed.json["campaigns"]] == [campaign]
    after = read_ready(workspace.daemon)
    assert after is not None
    assert after.pid != before.pid
    assert after.epoch != before.epoch
    # Workers elsewhere know the address: it stays.
    assert after.url == before.url
    with ensure_daemon(workspace) as client:
        retry_until(lambda: client.get(f"campaigns/{campaign}")["state"] == "awaiting_review")
    shown = a3r("campaign", "show", "tiny")
    assert "awaits review: s1-b1, s1-b2" in shown.out
    assert f"a3r blueprint approve --stage {campaign}" in shown.out


def test_a_second_daemon_is_refused(a3r: Any, workspace: Workspace) -> None:
    ensure_daemon(workspace).close()
    pid = holder(workspace.daemon)
    second = subprocess.run(
        [sys.executable, "-m", "a3r.cli.daemon", "--workspace", str(workspace.root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 3
    assert f"runs already (pid {pid})" in second.stderr
    status = a3r("daemon", "status", "--json")
    assert (status.code, status.json["pid"]) == (0, pid)


def test_many_callers_at_once_get_the_same_daemon(workspace: Workspace) -> None:
    pids: list[int] = []

    def call() -> None:
        with ensure_daemon(workspace) as client:
            pids.append(client.get("daemon")["pid"])

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 4
    assert set(pids) == {holder(workspace.daemon)}


def test_a_daemon_that_has_not_taken_the_lock_yet_does_not_outlive_its_test(
    workspace: Workspace, end_daemons: Any
) -> None:
    young = spawn_daemon(workspace)
    assert not is_locked(workspace.daemon)
    end_daemons(workspace)
    assert young.wait(5) == -signal.SIGKILL


def test_stop_ends_the_daemon_and_may_be_repeated(a3r: Any, workspace: Workspace) -> None:
    ensure_daemon(workspace).close()
    stopped = a3r("daemon", "stop", "--json")
    assert (stopped.code, stopped.json["stopped"]) == (0, True)
    assert not is_locked(workspace.daemon)
    assert a3r("daemon", "stop", "--json").json["stopped"] is False
    gone = a3r("daemon", "status", "--json")
    assert (gone.code, gone.json["error"]["code"]) == (4, "hub_unreachable")


class _Stranger(BaseHTTPRequestHandler):
    """Another program on the daemon's former port, which remembers what it was sent."""

    heard: list[str]

    def do_GET(self) -> None:
        type(self).heard.append(f"{self.path} {self.headers}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok", "proof": "trust me"}')

    def log_message(self, *args: Any) -> None:
        """Quiet."""


def test_a_stranger_on_the_former_port_is_not_believed_and_never_sees_the_token(
    workspace: Workspace,
) -> None:
    ensure_daemon(workspace).close()
    ready = read_ready(workspace.daemon)
    assert ready is not None
    os.kill(ready.pid, signal.SIGKILL)
    retry_until(lambda: not is_locked(workspace.daemon))
    _Stranger.heard = []
    with HTTPServer(("127.0.0.1", ready.port), _Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # The pid on file belongs to a live process too: this one.
        ready.model_copy(update={"pid": os.getpid()}).write(workspace.daemon)
        assert find_daemon(workspace) is None
        with ensure_daemon(workspace) as client:
            assert client.get("daemon")["pid"] == holder(workspace.daemon)
        server.shutdown()
    new = read_ready(workspace.daemon)
    assert new is not None
    assert new.port != ready.port
    assert _Stranger.heard
    assert HubTokens.read(workspace.daemon).admin not in "".join(_Stranger.heard)


def test_a_database_from_a_newer_version_is_told_through_the_command(
    a3r: Any, workspace: Workspace
) -> None:
    ensure_daemon(workspace).close()
    a3r("daemon", "stop")
    with closing(sqlite3.connect(workspace.database)) as connection:
        connection.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreError, match="schema version 999"):
        ensure_daemon(workspace)
    told = a3r("campaign", "list")
    assert told.code == 1
    assert "error: " in told.err
    assert "999" in told.err
    assert "hint: " in told.err
    found = guarded(database)
    assert (found.level, "999" in found.detail) == ("fail", True)


def test_doctor_says_what_to_do_about_a_database_that_is_none(workspace: Workspace) -> None:
    workspace.database.write_bytes(b"no database at all" * 99)
    found = guarded(database)
    assert (found.level, "Restore a3r.db" in found.hint) == ("fail", True)


def test_a_daemon_that_cannot_start_says_why(
    a3r: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A3R_LEASE_S", "soon")
    told = a3r("campaign", "list", "--json")
    assert (told.code, told.json["error"]["code"]) == (2, "workspace_unusable")
    assert "lease_s" in told.json["error"]["message"]


def test_doctor_is_content_here(a3r: Any, workspace: Workspace) -> None:
    told = a3r("doctor", "--json")
    assert told.code == 0
    names = {c["name"] for c in told.json["checks"]}
    assert {"python", "torch", "tmux", "disk", "workspace", "database", "daemon"} <= names
    assert all(c["hint"] for c in told.json["checks"] if c["level"] != "ok")


class Watch:
    """A watching command in a process of its own."""

    def __init__(self, goal: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "a3r", "campaign", "start", str(goal), *options],
            cwd=goal.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr or []))
        self._reader.start()

    def until(self, words: str) -> None:
        retry_until(lambda: any(words in line for line in self.lines), what=words)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Exit code and stdout."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with self.process.stdout as out, self.process.stderr:
            text = out.read()
            code = self.process.wait(60)
            self._reader.join()
        return code, text


@pytest.mark.slow
def test_watch_waits_for_review_survives_a_kill_and_ends_with_the_campaign(
    workspace: Workspace, goal: Path
) -> None:
    watch = Watch(goal, "--json")
    watch.until("await your review")
    pid = holder(workspace.daemon)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    watch.until("connected to the daemon again")
    with ensure_daemon(workspace) as client:
        client.post("campaigns/tiny/stop")
    code, out = watch.end()
    assert code == 1
    error = json.loads(out)["error"]
    assert (error["code"], error["details"]["state"]) == ("campaign_not_done", "stopped")
    assert any("stop requested" in line for line in watch.lines)


@pytest.mark.slow
def test_ctrl_c_twice_asks_for_a_stop(workspace: Workspace, goal: Path) -> None:
    watch = Watch(goal)
    watch.until("await your review")
    watch.interrupt()
    watch.until("detaching")
    watch.interrupt()
    watch.until("asked the campaign to stop")
    assert watch.end()[0] == 1


@pytest.mark.slow
def test_ctrl_c_once_detaches_and_says_how_to_come_back(workspace: Workspace, goal: Path) -> None:
    watch = Watch(goal)
    watch.until("await your review")
    watch.interrupt()
    assert watch.end()[0] == 130
    assert "a3r campaign watch tiny-" in watch.lines[-1]
    with ensure_daemon(workspace) as client:
        assert client.get("campaigns/tiny")["state"] == "awaiting_review"


@pytest.mark.slow
def test_ctrl_c_with_json_still_gives_one_document(workspace: Workspace, goal: Path) -> None:
    watch = Watch(goal, "--json")
    watch.until("await your review")
    watch.interrupt()
    code, out = watch.end()
    assert code == 130
    error = json.loads(out)["error"]
    assert error["code"] == "detached"
    assert "a3r campaign watch tiny-" in error["hint"]
