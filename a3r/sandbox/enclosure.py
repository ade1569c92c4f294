"""Puts a command behind walls: ``enclose`` returns what to start instead, and a record of which walls there are."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from a3r.blueprints.model import SandboxSpec
from a3r.core.errors import HostError
from a3r.sandbox import wall
from a3r.sandbox.host import HostWalls, host_walls, proc_args
from a3r.sandbox.interpreter import interpreter

WALL = Path(wall.__file__)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
ETC = (
    *(
        "passwd",
        "group",
        "hosts",
        "resolv.conf",
        "nsswitch.conf",
        "host.conf",
        "gai.conf",
        "services",
    ),
    *(
        "protocols",
        "localtime",
        "timezone",
        "ssl",
        "pki",
        "ca-certificates",
        "ld.so.cache",
        "ld.so.conf",
    ),
    *("ld.so.conf.d", "alternatives", "mime.types"),
)
"""Of /etc; nothing that holds a secret, but for the folders of ``PRIVATE``."""
PRIVATE = ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/consumer", "/etc/pki/entitlement")
"""Keys of the host, which root may read: never seen."""
PROXY_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


class SandboxMissing(HostError):
    """The blueprint requires walls that this host cannot build."""

    code = "sandbox_missing"


class SandboxRecord(BaseModel):
    """Which walls a process had; kept with the attempt."""

    model_config = ConfigDict(frozen=True)

    mode: str
    tool: str
    """``bubblewrap 0.8.0``; ``limits`` = only limits of the process; ``none``."""
    enforced: list[str] = Field(default_factory=list[str])
    """Of ``files``, ``processes``, ``network``, ``memory``, ``process_count``, ``open_files``, ``file_size``, ``core_dumps``."""
    not_enforced: dict[str, str] = Field(default_factory=dict[str, str])
    """Wall -> why not."""


@dataclass(frozen=True)
class Enclosed:
    """What to start instead."""

    argv: list[str]
    env: dict[str, str]
    """To add to the environment."""
    record: SandboxRecord


@dataclass(frozen=True)
class Room:
    """What a process is given of the host."""

    scratch: Path
    """A folder outside the walls for the spec; one a process."""
    work: Path
    """Its own folder, made if absent: read and write, HOME and TMPDIR."""
    readable: Sequence[Path] = ()
    """Its code, its spec, its token; and folders with data."""
    writable: Sequence[Path] = ()
    hidden: Sequence[Path] = ()
    """Folders that are never seen, also where they lie in something readable: the workspace."""
    ports: Sequence[int] = ()
    """Of 127.0.0.1 that it may reach: its swarm servers."""
    proxy: str = ""
    """URL of a proxy that it may use; which hosts that lets through is the proxy's decision."""
    pythonpath: str = ""
    devices: Sequence[Path] = field(default_factory=tuple)


def enclose(
    argv: Sequence[str],
    cwd: Path,
    spec: SandboxSpec,
    room: Room,
    *,
    host: HostWalls | None = None,
    python: str = "",
    stdin: bool = False,
) -> Enclosed:
    """Put ``argv`` behind the walls of ``spec``, as far as this host can build them.

    Args:
        argv: an absolute program first.
        cwd: where it starts; must be readable.
        spec: mode ``off`` returns the command unchanged.
        room: what it is given.
        host: what the host can do; None = ask (once a process).
        python: the interpreter whose packages it needs; empty = ``argv[0]`` when that is one.
        stdin: it reads what its starter is given; False: it reads nothing.

    Raises:
        SandboxMissing: mode ``required``, and a wall cannot be built here.
        NoInterpreter: ``python`` does not answer.
    """
    if spec.mode == "off":
        return Enclosed(list(argv), {}, _record(spec, "none", (), "the blueprint says off"))
    host = host or host_walls()
    missing = dict(host.missing)
    if spec.mode == "required":
        _require_none(missing)
    for folder in (room.scratch, room.work / "tmp"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    inside = {"argv": list(argv), "cwd": str(cwd), "stdin": stdin}
    told = {**inside, **_walls(cwd, spec, room, host, python or argv[0])}
    path = room.scratch / "wall.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    env = {"HOME": str(room.work), "TMPDIR": str(room.work / "tmp"), "A3R_WORK": str(room.work)}
    if room.proxy and not told["relays"]:
        env |= dict.fromkeys(wall.PROXY_NAMES, room.proxy)
    record = _record(spec, host.version or "limits", host.flags, "", missing)
    return Enclosed([sys.executable, "-I", "-S", str(WALL), str(path)], env, record)


def _walls(
    cwd: Path, spec: SandboxSpec, room: Room, host: HostWalls, python: str
) -> dict[str, Any]:
    """What the program between this one and the enclosed one is told of the walls (``a3r.sandbox.wall``)."""
    return {
        "wall": _bwrap(cwd, room, host, python) if host.bwrap else [],
        "inside": [os.path.realpath(sys.executable), "-I", "-S", str(WALL)],
        "relays": _relays(spec, room) if host.bwrap and host.network else [],
        "limits": _limits(spec),
        "memory_mb": spec.memory_mb,
        "processes": spec.processes,
    }


def _require_none(missing: Mapping[str, str]) -> None:
    if missing:
        told = "; ".join(f"{name}: {why}" for name, why in missing.items())
        raise SandboxMissing(
            f"The blueprint requires a sandbox, which this host cannot build ({told}).",
            hint="Install bubblewrap and allow user namespaces, or set sandbox.mode to auto.",
        )


def _limits(spec: SandboxSpec) -> dict[str, int]:
    limits = {"NOFILE": spec.open_files}
    if spec.memory_mb is not None:
        limits["DATA"] = spec.memory_mb << 20
    if spec.file_mb is not None:
        limits["FSIZE"] = spec.file_mb << 20
    return limits


def _relays(spec: SandboxSpec, room: Room) -> list[dict[str, Any]]:
    """Ports behind the walls and where each leads. Without one, nothing leads out."""
    relays: list[dict[str, Any]] = [
        {"port": port, "to": ["127.0.0.1", port]} for port in dict.fromkeys(room.ports)
    ]
    if room.proxy:
        url = urlsplit(room.proxy)
        user, at, _ = url.netloc.rpartition("@")
        to = [url.hostname or "127.0.0.1", url.port or PROXY_PORTS.get(url.scheme, 80)]
        told = f"{url.scheme}://{user}{at}127.0.0.1:{{port}}"
        relays.append({"port": 0, "to": to, "proxy": told})
    elif spec.hosts:
        hosts = [host.lower() for host in spec.hosts]
        relays.append({"port": 0, "to": None, "hosts": hosts, "proxy": "http://127.0.0.1:{port}"})
    return relays


def _bwrap(cwd: Path, room: Room, host: HostWalls, python: str) -> list[str]:
    """The bubblewrap command. What is not named here does not exist behind the walls; later mounts cover earlier ones."""
    args = [host.bwrap, *host.flags, *proc_args(host.flags), "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    args += _system()
    # Its own interpreter, and the one of this program, which starts it.
    folders = {*interpreter(python, room.pythonpath).folders, *interpreter().folders}
    seen = [*sorted(folders), *room.readable]
    for path in sorted(folders):
        args += ["--ro-bind", str(path), str(path)]
    args += ["--ro-bind", str(WALL), str(WALL)]
    for path in room.hidden:
        if any(s in path.parents or s == path for s in seen):
            args += ["--tmpfs", str(path)]
    for path in room.readable:
        args += ["--ro-bind", str(path), str(path)]
    for path in (room.work, *room.writable):
        args += ["--bind", str(path), str(path)]
    for path in room.devices:
        args += ["--dev-bind-try", str(path), str(path)]
    return [*args, "--remount-ro", "/", "--chdir", str(cwd), "--"]


def _system() -> list[str]:
    """The host's programs and what they read of /etc."""
    args: list[str] = []
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            args += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            args += ["--ro-bind", str(path), str(path)]
    for name in ETC:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in PRIVATE:
        if Path(name).is_dir():
            args += ["--tmpfs", name]
    return args


def _record(
    spec: SandboxSpec,
    tool: str,
    flags: Sequence[str],
    off: Literal["", "the blueprint says off"],
    missing: Mapping[str, str] | None = None,
) -> SandboxRecord:
    walls = ("files", "processes", "network")
    limits = ["process_count", "open_files", "core_dumps"]
    if spec.memory_mb is not None:
        limits.append("memory")
    if spec.file_mb is not None:
        limits.append("file_size")
    if off:
        absent = dict.fromkeys((*walls, *limits), off)
        return SandboxRecord(mode=spec.mode, tool=tool, not_enforced=absent)
    absent = dict(missing or {})
    built = [name for name in walls if flags and name not in absent]
    return SandboxRecord(mode=spec.mode, tool=tool, enforced=[*built, *limits], not_enforced=absent)
