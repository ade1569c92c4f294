"""Who plays in a swarm group: named servers, the roles that they and external models play, and what one grant of it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from swarm.client.errors import ClientUsageError
from swarm.client.external import ExternalModel
from swarm.protocol.episodes import AgentKey, FinishReply, Grant, GrantRequest
from swarm.protocol.states import EpisodeKind

ROLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class GroupRole:
    """A role that a server's model plays."""

    server: str
    """Name of the server in the group."""
    train: bool = True
    """False: what it says is recorded and never trained."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The roles of a group."""

    servers: tuple[str, ...]
    """In the order that was given; the first is the lead, whose steps choose the tasks."""
    roles: dict[str, GroupRole]
    externals: dict[str, ExternalModel]

    def trains(self, server: str) -> bool:
        """Whether any of the server's roles trains; a server without one only plays along."""
        return any(r.train for r in self.roles.values() if r.server == server)

    def agents(self, server: str) -> dict[str, bool]:
        """Role -> whether it trains, when the server plays several roles; empty for one role: it needs no agent key."""
        found = {name: r.train for name, r in self.roles.items() if r.server == server}
        return found if len(found) > 1 else {}

    def role_of(self, server: str) -> str:
        """The only role of a server; empty when it plays several."""
        found = [name for name, r in self.roles.items() if r.server == server]
        return found[0] if len(found) == 1 else ""


def cast_of(
    servers: Iterable[str],
    roles: Mapping[str, GroupRole | str] | None,
    externals: Mapping[str, ExternalModel] | None,
) -> Cast:
    """Check names; without ``roles`` each server plays the role of its own name.

    Raises:
        ClientUsageError: no server, a role of an unknown server, a server without a role, a name that is used twice or malformed.
    """
    names = tuple(servers)
    given = roles if roles is not None else {name: name for name in names}
    read = {n: GroupRole(r) if isinstance(r, str) else r for n, r in given.items()}
    outside = dict(externals or {})
    problem = _problem(names, read, outside)
    if problem:
        raise ClientUsageError(
            f"This group cannot play: {problem}.",
            hint="SwarmGroup({'planner': client_a, 'solver': client_b}, externals={'judge': ExternalModel(...)}).",
        )
    return Cast(names, read, outside)


def _problem(
    servers: tuple[str, ...], roles: Mapping[str, GroupRole], externals: Mapping[str, ExternalModel]
) -> str:
    if not servers:
        return "it has no server"
    for name in (*roles, *externals):
        if not ROLE_NAME.fullmatch(name):
            return (
                f"the role name {name!r} has other characters than letters, digits, '_', '.', '-'"
            )
    for name, role in roles.items():
        if role.server not in servers:
            return f"role {name!r} is of server {role.server!r}; its servers are {', '.join(map(repr, servers))}"
        if name in externals:
            return f"the role {name!r} is played twice"
    idle = set(servers) - {role.server for role in roles.values()}
    if idle:
        return f"the server {min(idle)!r} plays no role"
    return "" if any(role.train for role in roles.values()) else "no role of it trains"


@dataclass(frozen=True, slots=True)
class Member:
    """One server's part in an episode."""

    grant: Grant
    request: GrantRequest
    keys: dict[str, AgentKey] = field(default_factory=dict[str, AgentKey])
    """Role -> key, when the server plays several."""

    @property
    def trains(self) -> bool:
        """False: it plays along (an eval episode of its server) and nothing of it trains."""
        return self.request.kind is EpisodeKind.TRAIN


class GroupGrant(Grant):
    """Answer to a group's request for an episode: granted by all servers or by none.

    The fields of a grant are the lead's: the first server, in the order given, that trains the episode (none does: the first).
    """

    members: dict[str, Member] = Field(default_factory=dict[str, Member])
    """By server, in the order given; empty = nothing was granted."""


def granted_to(members: Mapping[str, Member]) -> GroupGrant:
    """The grant that these members make together."""
    every = list(members.values())
    lead = next((m for m in every if m.trains), every[0]).grant
    return GroupGrant.model_validate({**dict(lead), "members": dict(members)})


class GroupOutcome(FinishReply):
    """What became of a group's episode. ``accepted``: every server that trains took it."""

    servers: dict[str, FinishReply] = Field(default_factory=dict[str, FinishReply])
    """Answers by server; servers that did not answer are left out."""
    split: dict[str, str] = Field(default_factory=dict[str, str])
    """Servers that promised and then did not take it although another had, with why. Empty but for a server that died, or could not be reached, between its promise and the commit for longer than the promise held."""


WhenTrained = Literal["play", "stop"]
"""What a server does that has reached its ``stop_at_step`` while others train on: play along frozen, or end the run."""
