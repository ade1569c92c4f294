"""The guide "your laptop, their GPUs": a real sshd on loopback, a real `ssh -L`, and a tunnel that drops, freezes and returns."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm.client import SwarmClient, run_episodes
from swarm.protocol.states import EngineState
from swarm.testing.server_process import ServerProcess, server_process

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
NEEDED = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(SSHD is None or bool(NEEDED), reason="needs sshd, ssh and ssh-keygen"),
    pytest.mark.timeout(120),
]
PATIENCE_S = 20.0
HELLO = [{"role": "user", "content": "Compute 1+2."}]
SMALL = {"engine": "toy", "stop_at_step": 3, "batch": {"tasks": 2, "repeat": 2}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait for a condition in another process."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, what()
        threading.Event().wait(0.02)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Remote:
    """An sshd of this test's own, and the way into it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, timeout=30)
        host = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host}")
        lines = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": f'"{folder / "host_key"}"',
            "AuthorizedKeysFile": f'"{folder / "user_key.pub"}"',
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
        }
        (folder / "sshd_config").write_text("".join(f"{k} {v}\n" for k, v in lines.items()))

    @contextmanager
    def running(self) -> Generator[None]:
        if os.geteuid() == 0:  # sshd's own folder for a privileged start; packages make it at boot
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        log = self.folder / "sshd.log"
        argv = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output)
        try:
            until(
                lambda: process.poll() is not None or accepts(self.port),
                lambda: log.read_text(),
            )
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.terminate()
            process.wait(10)

    def forward(self, local: int, remote: int) -> subprocess.Popen[bytes]:
        """``ssh -L`` as the guide says it; returns once the local port is open."""
        options = {
            "BatchMode": "yes",
            "ExitOnForwardFailure": "yes",
            "IdentitiesOnly": "yes",
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "UserKnownHostsFile": f'"{self.folder / "known_hosts"}"',
        }
        argv = ["ssh", "-F", "/dev/null", "-N", "-p", str(self.port)]
        argv += ["-i", str(self.folder / "user_key"), "-L", f"{local}:127.0.0.1:{remote}"]
        argv += [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        user = pwd.getpwuid(os.geteuid()).pw_name
        log = self.folder / "ssh.log"
        with log.open("ab") as output:
            tunnel = subprocess.Popen([*argv, f"{user}@127.0.0.1"], stdout=output, stderr=output)
        until(lambda: tunnel.poll() is not None or accepts(local), lambda: log.read_text())
        assert tunnel.poll() is None, log.read_text() + (self.folder / "sshd.log").read_text()
        return tunnel


class Laptop:
    """The near end: one local port, behind which the tunnel comes and goes."""

    def __init__(self, remote: Remote, server: ServerProcess) -> None:
        self.remote, self.server, self.port = remote, server, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.tunnel: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        self.tunnel = self.remote.forward(self.port, int(self.server.url.rpartition(":")[2]))

    def drop(self) -> None:
        """The tunnel dies, as when a network changes."""
        assert self.tunnel is not None
        self.tunnel.kill()
        self.tunnel.wait(10)


@pytest.fixture
def laptop(tmp_path: Path) -> Generator[Laptop]:
    (tmp_path / "ssh").mkdir()
    remote = Remote(tmp_path / "ssh")
    with server_process(tmp_path / "state") as server, remote.running():
        with SwarmClient(server.url, server.token()) as near:
            near.configure(SMALL)
            near.start()
        one = Laptop(remote, server)
        one.connect()
        yield one
        if one.tunnel is not None and one.tunnel.poll() is None:
            one.tunnel.send_signal(signal.SIGCONT)
            one.drop()


def seen_by_the_server(laptop: Laptop) -> Any:
    with SwarmClient(laptop.server.url, laptop.server.token()) as near:
        return near.status()


def test_an_episode_goes_on_when_its_tunnel_drops_and_comes_back(laptop: Laptop) -> None:
    with (
        SwarmClient(laptop.url, laptop.server.token("client")) as client,
        ThreadPoolExecutor(1) as elsewhere,
        client.episode("t") as episode,
    ):
        # Agents are sent through the tunnel too: the address is the one that was dialled.
        assert episode.grant.base_url == f"{laptop.url}/v1"
        episode.chat(HELLO)
        laptop.drop()
        waiting = elsewhere.submit(episode.chat, HELLO)
        assert seen_by_the_server(laptop).open_episodes == 1
        assert not waiting.done()
        laptop.connect()
        waiting.result(PATIENCE_S)
        assert episode.finish(1.0).accepted
        assert [call.index for call in client.trace(episode.id).calls] == [0, 1]


def test_a_call_that_a_sleep_froze_is_answered_once_after_it(laptop: Laptop) -> None:
    assert laptop.tunnel is not None
    with (
        SwarmClient(laptop.url, laptop.server.token("client")) as client,
        ThreadPoolExecutor(1) as elsewhere,
        client.episode("t") as episode,
    ):
        episode.chat(HELLO)
        laptop.tunnel.send_signal(signal.SIGSTOP)
        waiting = elsewhere.submit(episode.chat, HELLO)
        assert seen_by_the_server(laptop).open_episodes == 1
        assert not waiting.done()
        laptop.tunnel.send_signal(signal.SIGCONT)
        waiting.result(PATIENCE_S)
        assert episode.finish(1.0).accepted
        assert len(client.trace(episode.id).calls) == 2


def test_a_whole_run_ends_well_over_a_tunnel_that_drops(laptop: Laptop) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def agent(episode: Any, task: Any) -> float:
        episode.chat(HELLO)
        if episode.grant.step == 1:
            begun.set()
            may_go_on.wait(PATIENCE_S)
        episode.chat(HELLO)
        return float(task.task_id[-1] == "0") + episode.grant.repeat_index

    tasks = [f"task-{n}" for n in range(8)]
    with (
        SwarmClient(laptop.url, laptop.server.token("client"), "laptop") as client,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        run = elsewhere.submit(run_episodes, tasks, agent, client=client, parallel=4)
        assert begun.wait(PATIENCE_S)
        laptop.drop()
        may_go_on.set()
        assert seen_by_the_server(laptop).step == 1
        laptop.connect()
        summary = run.result(60)
        assert summary.ended == "training_complete"
        status = seen_by_the_server(laptop)
        assert (status.state, status.step) == (EngineState.TRAINED, 3)
