"""A Ray cluster on this machine: ``ray start`` once a node, each at a loopback address and in a process namespace of its own.

With bubblewrap a node's processes cannot be seen from another node, as on machines apart; without it the nodes share a table
of processes, which ``apart`` tells. GPUs are pretended: Ray counts what it is told.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 120.0
STORE_BYTES = 100_000_000
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
}
"""Of every process that talks to the cluster."""


AT_HEAD = """
import json, os, subprocess
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

@ray.remote(num_cpus=0)
def run(command):
    # What Ray tells its workers is not for a driver.
    environment = {{k: v for k, v in os.environ.items() if not k.startswith("RAY_JOB")}}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return {{"code": done.returncode, "output": done.stdout, "errors": done.stderr}}

(head,) = [n["NodeID"] for n in ray.nodes() if "node:__internal_head__" in n["Resources"]]
pinned = NodeAffinitySchedulingStrategy(head, soft=False)
print(json.dumps(ray.get(run.options(scheduling_strategy=pinned).remote({command!r}))))
"""


class RayCluster:
    """Nodes of one cluster; the first is the head, at this machine's own address, node ``k`` at ``127.0.0.<k + 1>``."""

    def __init__(self) -> None:
        self.apart = _can_unshare()
        """Whether each node has a table of processes of its own."""
        self.folder = Path(tempfile.mkdtemp(prefix="ray"))
        """Of sockets, whose paths must be short."""
        self.host = _own_address()
        """Of the head. Not loopback's first address: Ray puts another in its place."""
        self._port = _free_port()
        self._nodes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """For ``verl.ray_address``."""
        return f"{self.host}:{self._port}"

    def add(
        self, *, gpus: int, cpus: int = 8, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a node and wait until the cluster counts it.

        Raises:
            RuntimeError: it ended, or did not come in ``START_S``.
        """
        number = len(self._nodes)
        head = ["--head", f"--port={self._port}", "--include-dashboard=false"]
        told = head if not number else [f"--address={self.address}"]
        command = [
            *(str(_ray()), "start", "--block", *told),
            f"--node-ip-address={self.host if not number else f'127.0.0.{number + 1}'}",
            f"--num-gpus={gpus}",
            f"--num-cpus={cpus}",
            f"--object-store-memory={STORE_BYTES}",
            *(["--temp-dir", str(self.folder)] if not number else []),
        ]
        log = (self.folder / f"node{number}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [*UNSHARED, *command] if self.apart else command,
                env={**os.environ, **ENVIRONMENT, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._nodes.append(process)
        self._wait_for(number + 1, process)

    def ask(self, code: str, *, timeout_s: float = START_S) -> str:
        """Run Python in a process of its own, connected to the cluster (``ray`` is imported); return its last line.

        Raises:
            RuntimeError: it failed; the message is what it wrote.
        """
        whole = f"import ray; ray.init({self.address!r}, log_to_driver=False)\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", whole],
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout.strip().splitlines()[-1]

    def at_head(self, command: Sequence[str]) -> str:
        """Run a command on the head's machine, where other nodes' processes are out of sight; return what it printed.

        Raises:
            RuntimeError: it failed; the message is what it wrote.
        """
        answer = json.loads(self.ask(AT_HEAD.format(command=list(command)), timeout_s=2 * START_S))
        if answer["code"]:
            raise RuntimeError(answer["errors"][-2000:])
        return str(answer["output"])

    def close(self) -> None:
        """End every node and remove what they wrote. Safe twice."""
        for process in reversed(self._nodes):
            # SIGTERM would do for Ray's own processes, and not for what an actor left behind.
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
        self._nodes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_for(self, count: int, process: subprocess.Popen[bytes]) -> None:
        code = "import json; print(json.dumps(sum(n['Alive'] for n in ray.nodes())))"
        until = time.monotonic() + START_S
        told = ""
        while time.monotonic() < until and process.poll() is None:
            try:
                if json.loads(self.ask(code, timeout_s=60)) >= count:
                    return
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                told = str(error)
        log = (self.folder / f"node{count - 1}.log").read_text("utf-8", "replace")
        self.close()
        raise RuntimeError(f"Ray's node {count - 1} did not start: {told[-500:]}\n{log[-2000:]}")


@contextmanager
def ray_cluster(*gpus: int, cpus: int = 8) -> Iterator[RayCluster]:
    """A cluster with one node for each number of pretended GPUs; ended at the end."""
    cluster = RayCluster()
    try:
        for number in gpus:
            cluster.add(gpus=number, cpus=cpus)
        yield cluster
    finally:
        cluster.close()


UNSHARED = (
    *("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"),
    "--die-with-parent",
)


def _can_unshare() -> bool:
    if shutil.which("bwrap") is None:
        return False
    tried = subprocess.run([*UNSHARED, "true"], capture_output=True, check=False, timeout=20)
    return tried.returncode == 0


def _ray() -> Path:
    return Path(sys.executable).parent / "ray"


def _own_address() -> str:
    """As Ray finds it: of the interface that a packet to the outside would take; none is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 80))
        except OSError:
            return "127.0.0.1"
        return str(one.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
