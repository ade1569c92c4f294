"""A process in a container: Docker or Podman as a command, with walls of their own. Scheduling and images are theirs.

The engine's client is the supervised process; the container carries the attempt's nonce as a label, so that what a killed
client leaves behind is found and ended.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from a3r.blueprints.model import SandboxSpec
from a3r.core.errors import HostError
from a3r.sandbox.enclosure import SandboxRecord

logger = logging.getLogger(__name__)

ENGINES = ("podman", "docker")
LABEL = "a3r.nonce"
ASK_S = 30.0


def container_engine(path: str | None = None) -> str:
    """The path of Podman or Docker.

    Raises:
        HostError: the host has neither.
    """
    for name in ENGINES:
        found = shutil.which(name, path=path)
        if found:
            return found
    raise HostError(
        "This host has no container engine.", hint="Install podman or docker, or use a venv."
    )


@dataclass(frozen=True)
class Container:
    """An image and the engine that runs it."""

    engine: str
    image: str

    def digest(self) -> str:
        """The image's id as the engine knows it; empty when it does not have the image yet."""
        said = _ask([self.engine, "image", "inspect", "--format", "{{.Id}}", self.image])
        return said.strip()

    def argv(
        self,
        command: Sequence[str],
        *,
        nonce: str,
        cwd: Path,
        readable: Sequence[Path],
        writable: Sequence[Path],
        names: Sequence[str],
        sandbox: SandboxSpec | None,
        gpus: Sequence[int] = (),
    ) -> tuple[list[str], SandboxRecord]:
        """The command that runs ``command`` in the image, and which walls that gives.

        ``names``: environment variables that are handed on; their values are taken from the engine's own environment, so
        they stand in no argument. Loopback is the host's: the swarm server listens there.
        """
        argv = [
            *(self.engine, "run", "--rm", "--init", "--network", "host"),
            *("--label", f"{LABEL}={nonce}", "--workdir", str(cwd)),
            *("--user", f"{os.getuid()}:{os.getgid()}"),
        ]
        for path in readable:
            argv += ["--volume", f"{path}:{path}:ro"]
        for path in writable:
            argv += ["--volume", f"{path}:{path}"]
        for name in names:
            argv += ["--env", name]
        argv += self._gpu_args(gpus)
        walls = _walls(sandbox)
        return [*argv, *walls, self.image, *command], _record(sandbox)

    def _gpu_args(self, gpus: Sequence[int]) -> list[str]:
        if not gpus:
            return []
        if Path(self.engine).name == "podman":
            return [part for gpu in gpus for part in ("--device", f"nvidia.com/gpu={gpu}")]
        return ["--gpus", '"device=' + ",".join(map(str, gpus)) + '"']


def _walls(sandbox: SandboxSpec | None) -> list[str]:
    if sandbox is None or sandbox.mode == "off":
        return []
    argv = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]  # noqa: S108
    argv += ["--security-opt", "no-new-privileges", "--pids-limit", str(sandbox.processes)]
    argv += ["--ulimit", f"nofile={sandbox.open_files}:{sandbox.open_files}", "--ulimit", "core=0"]
    if sandbox.memory_mb is not None:
        argv += ["--memory", f"{sandbox.memory_mb}m"]
    if sandbox.file_mb is not None:
        argv += ["--ulimit", f"fsize={sandbox.file_mb << 20}"]
    return argv


def _record(sandbox: SandboxSpec | None) -> SandboxRecord:
    if sandbox is None or sandbox.mode == "off":
        return SandboxRecord(mode="off", tool="container", enforced=["files", "processes"])
    enforced = ["files", "processes", "process_count", "open_files", "core_dumps"]
    enforced += ["memory"] if sandbox.memory_mb is not None else []
    enforced += ["file_size"] if sandbox.file_mb is not None else []
    why = {"network": "a container shares the host's network, to reach its swarm servers"}
    return SandboxRecord(mode=sandbox.mode, tool="container", enforced=enforced, not_enforced=why)


def reap(nonce: str, path: str | None = None) -> int:
    """End the containers of an attempt that are left; returns how many there were. No engine: 0."""
    ended = 0
    for name in ENGINES:
        engine = shutil.which(name, path=path)
        if engine is None:
            continue
        left = _ask([engine, "ps", "--quiet", "--filter", f"label={LABEL}={nonce}"]).split()
        for container in left:
            _ask([engine, "rm", "--force", container])
        ended += len(left)
    return ended


def _ask(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """What the engine says; empty when it fails."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=ASK_S, check=False, env=env,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s does not answer: %s", argv[0], error)
        return ""
    return done.stdout if done.returncode == 0 else ""
