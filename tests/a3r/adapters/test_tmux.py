import os
import shutil
import sys

import pytest
from libtmux import Server

from a3r.adapters.tmux import HISTORY_LINES, TmuxTerminal
from a3r.testing.waiting import retry_until as until
from a3r.worker import supervisor
from a3r.worker.processes import Launcher, ProcessState, read_json, sweep

SLOW_TALK = "import time\nfor i in range(400): print('line', i, flush=True); time.sleep(0.05)"


@pytest.fixture
def socket():
    name = f"a3r-test-{os.urandom(4).hex()}"
    yield name
    server = Server(socket_name=name)
    if server.is_alive():
        server.kill()


@pytest.fixture
def nonce():
    value = f"test-{os.urandom(8).hex()}"
    yield value
    sweep({supervisor.NONCE: value}, 0.2)


def start(launcher, folder, nonce, code, name="client.1"):
    return launcher.start(
        folder / "proc" / name,
        [sys.executable, "-c", code],
        cwd=folder,
        log=folder / "logs" / "client.log",
        nonce=nonce,
        session="a3r-0000001",
        grace_s=0.5,
    )


@pytest.mark.tmux
@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_windows_show_the_processes_with_a_history_fixed_before_the_pane(socket, nonce, tmp_path):
    folder = tmp_path / "mit Leerzeichen é;"
    folder.mkdir()
    launcher = Launcher(TmuxTerminal(socket), os.environ)
    assert not TmuxTerminal(socket).has_session("a3r-0000001")
    process = start(launcher, folder, nonce, SLOW_TALK)
    assert TmuxTerminal(socket).has_session("a3r-0000001")
    other = start(launcher, folder, nonce, SLOW_TALK, "server.1")
    until(lambda: process.state() is other.state() is ProcessState.RUNNING)
    session = Server(socket_name=socket).sessions.get(session_name="a3r-0000001")
    assert [w.window_name for w in session.windows] == ["client", "server"]
    pane = session.windows[0].panes[0]
    until(lambda: any("line 1" in line for line in pane.capture_pane()))
    limit = pane.cmd("display-message", "-p", "#{history_limit}").stdout
    assert limit == [str(HISTORY_LINES)]
    process.terminate()
    other.terminate()
    until(lambda: process.state() is other.state() is ProcessState.EXITED)
    until(lambda: not Server(socket_name=socket).is_alive())
    launcher.close_session("a3r-0000001")


@pytest.mark.tmux
@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_a_process_survives_the_death_of_the_tmux_server(socket, nonce, tmp_path):
    process = start(Launcher(TmuxTerminal(socket), os.environ), tmp_path, nonce, SLOW_TALK)
    until(lambda: process.state() is ProcessState.RUNNING)
    beat = until(lambda: read_json(process.folder / "heartbeat.json"))
    Server(socket_name=socket).kill()
    until(lambda: read_json(process.folder / "heartbeat.json")["at"] > beat["at"])
    assert process.state() is ProcessState.RUNNING
    size = len(process.log_tail())
    until(lambda: len(process.log_tail()) > size)
    process.terminate()
    until(lambda: process.state() is ProcessState.EXITED)
    assert process.exit().signal == "SIGTERM"


def test_without_tmux_processes_start_directly(nonce, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    terminal = TmuxTerminal()
    assert terminal.available() is False
    process = start(Launcher(terminal, os.environ), tmp_path, nonce, "print('here')")
    until(lambda: process.state() is ProcessState.EXITED)
    assert b"here" in process.log_tail()
    terminal.close_session("a3r-0000001")


def test_a_tmux_that_fails_is_told_once_and_never_raises(nonce, tmp_path, caplog, monkeypatch):
    broken = tmp_path / "bin" / "tmux"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'no server: permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    terminal = TmuxTerminal()
    assert terminal.available()
    launcher = Launcher(terminal, os.environ)
    for name in ("client.1", "client.2"):
        process = start(launcher, tmp_path, nonce, "print('here')", name)
        until(lambda p=process: p.state() is ProcessState.EXITED)
    terminal.close_session("a3r-0000001")
    warnings = [r for r in caplog.records if r.name == "a3r.adapters.tmux"]
    assert len(warnings) == 1
    assert "processes run without them" in warnings[0].message


def test_attaching_means_tmux_on_the_private_socket():
    assert TmuxTerminal().attach_argv("a3r-x") == [
        "tmux",
        "-L",
        "a3r",
        "attach-session",
        "-t",
        "=a3r-x",
    ]
