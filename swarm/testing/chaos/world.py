"""What a lane's world is made of, and the commands of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm.testing.chaos.processes import python

SECOND = "second"
"""Folder of the second server of a pair."""


@dataclass(frozen=True)
class World:
    """One server (or a pair) and its clients."""

    config: Mapping[str, Any]
    clients: int = 1
    parallel: int = 1
    eval_every: int = 0
    """The first client evaluates every so many steps; 0 = never."""
    proxied: bool = False
    """Between clients and server there is a proxy that misbehaves."""
    trouble_rate: float = 0.0
    """Share of requests that it troubles by chance."""
    seed: int = 0
    shared: bool = False
    """The clients take tasks from one queue of the server."""
    paired: bool = False
    """Two servers, and clients that play every episode on both."""
    limited_disk: bool = False
    """The state folder lies on a disk that can be filled."""


def server_command(folder: Path, port: int) -> list[str]:
    """Return the command of a server that takes up what ``folder`` holds."""
    arguments = ["--state-dir", folder / "state", "--port", port, "--resume"]
    return python("swarm.testing.chaos.server", *arguments, "--clock-file", folder / "clock")


def tool_command(port: int, orders: Path) -> list[str]:
    """Return the command of the agent's tool server."""
    return python("swarm.testing.chaos.tool", port, orders)


def player_command(name: str, world: World, url: str, folder: Path, tool_port: int) -> list[str]:
    """Return the command of a client."""
    arguments: list[object] = ["--url", url, "--token-file", folder / "client.token"]
    arguments += ["--folder", folder, "--client-id", name, "--tool-port", tool_port]
    arguments += ["--parallel", world.parallel]
    if world.shared:
        arguments += ["--shared", "--task-set", "shared"]
    else:  # clients with task sets of their own never compete for one another's seats
        arguments += ["--task-set", f"set-{name}"]
    if name.endswith("-0"):
        arguments += ["--eval-every", world.eval_every, "--eval-token-file", folder / "eval.token"]
    return python("swarm.testing.chaos.client", *arguments)


def pair_command(name: str, world: World, url: str, folder: Path, second_url: str) -> list[str]:
    """Return the command of a client of a pair of servers."""
    arguments: list[object] = ["--url", url, "--second-url", second_url, "--folder", folder]
    arguments += ["--second-folder", folder / SECOND, "--client-id", name]
    return python("swarm.testing.chaos.pair", *arguments, "--parallel", world.parallel)
