"""What a swarm group does to all its servers at once: configure, start, stop, agree, ask how they are. Programs, like ``group_moves``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.client import calls
from swarm.client.errors import ClientUsageError
from swarm.client.group_moves import Move, all_of, each, named
from swarm.protocol.clients import AgreeReply
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import SwarmError
from swarm.protocol.messages import ConfigChange, Status
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import CollectionPolicy, EngineState

BY_AGREEMENT = frozenset({CollectionPolicy.C4, CollectionPolicy.C5})
"""Policies under which trainers say when a step is taken."""
Config = TrainConfig | Mapping[str, Any]


def status(servers: tuple[str, ...]) -> Move[dict[str, Status]]:
    """How each is.

    Raises:
        SwarmError: one did not answer.
    """
    return (yield from all_of({s: calls.status() for s in servers}))


def metrics(servers: tuple[str, ...], after_step: int) -> Move[dict[str, list[StepMetrics]]]:
    """Completed steps greater than ``after_step`` of each."""
    return (yield from all_of({s: calls.metrics(after_step) for s in servers}))


def configure(
    servers: tuple[str, ...], configs: Mapping[str, Config], *, dry_run: bool
) -> Move[dict[str, list[ConfigChange]]]:
    """Look whether all named servers take their config, then set them; returns what changed.

    Raises:
        ClientUsageError: a name that is no server of the group.
        SwarmError: a server refuses; nothing was set anywhere then.
    """
    unknown = sorted(set(configs) - set(servers))
    if unknown:
        raise ClientUsageError(
            f"{unknown[0]!r} is no server of this group.",
            hint=f"Give one config a server: {', '.join(map(repr, servers))}.",
        )
    # A group of one half configured would train something that nobody asked for: all are asked first.
    shown = yield from all_of({s: calls.configure(c, dry_run=True) for s, c in configs.items()})
    if dry_run:
        return shown
    return (yield from all_of({s: calls.configure(c) for s, c in configs.items()}))


def start(servers: tuple[str, ...]) -> Move[dict[str, Status]]:
    """Boot all at once; when one fails, those that were started by this are stopped again.

    Raises:
        SwarmError: the first failure, with the server's name.
    """
    before = yield from status(servers)
    answers = yield from each({s: calls.start() for s in servers})
    failed = {s: a for s, a in answers.items() if isinstance(a, SwarmError)}
    if failed:
        ours = [s for s in servers if before[s].state is EngineState.OFFLINE and s not in failed]
        yield from each({s: calls.stop() for s in ours})
        server, error = next(iter(failed.items()))
        raise named(server, error) from error
    return answers


def stop(servers: tuple[str, ...]) -> Move[dict[str, Status]]:
    """Stop all, whatever one of them answers.

    Raises:
        SwarmError: the first that failed, after all were asked.
    """
    return (yield from all_of({s: calls.stop() for s in servers}))


def agree(
    clients: Mapping[str, str], for_step: Mapping[str, int] | None
) -> Move[dict[str, AgreeReply]]:
    """Agree on every server whose policy asks for it (C4, C5): train on what the pool has. The others are left out.

    Args:
        clients: server -> id of this client there.
        for_step: server -> step, only on these; None = the open step of each.

    Raises:
        SwarmError: the first that failed, after all were asked.
    """
    if for_step is None:
        pools = yield from all_of({s: calls.pool() for s in clients})
        for_step = {s: p.step for s, p in pools.items() if p.policy in BY_AGREEMENT}
    return (yield from all_of({s: calls.agree(clients[s], step) for s, step in for_step.items()}))
