"""What both colours of swarm group share: who plays, in which order servers are taken, what is asked of them. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from swarm.client import calls
from swarm.client.calls import LONG_POLL_S
from swarm.client.errors import ClientUsageError, TrainingComplete, WaitTimeout
from swarm.client.external import Book, ExternalModel, Usage
from swarm.client.group_moves import Move, all_of
from swarm.client.group_roles import GroupGrant, GroupRole, WhenTrained, cast_of
from swarm.client.group_take import TakePlan, take
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.messages import Status
from swarm.protocol.states import EpisodeKind, GrantOutcome

RESERVE_S = 15.0
"""How long a reservation lives: the other servers have to grant and confirm within it."""
ANYBODY = "group"
"""Stands for the client's id on each server, which is put in where a request is sent."""
PAUSE_S = 0.05
"""Between two rounds of asking."""


class GroupBase:
    """A group without its connections."""

    def __init__(
        self,
        names: Iterable[str],
        roles: Mapping[str, GroupRole | str] | None,
        externals: Mapping[str, ExternalModel] | None,
        *,
        reserve_s: float = RESERVE_S,
        when_trained: WhenTrained = "play",
        outage_limit_s: float = 1800.0,
    ) -> None:
        """Check who plays; see ``AsyncSwarmGroup``."""
        if not 1 <= reserve_s <= 60:
            raise ClientUsageError(
                f"reserve_s={reserve_s!r} is not between 1 and 60.",
                hint="Leave it out; it only needs to be longer than the slowest server takes to answer a few calls.",
            )
        self.cast = cast_of(names, roles, externals)
        self.book = Book()
        """What external models have used in all episodes of this group."""
        self.guests: frozenset[str] = frozenset()
        """Servers that only play along for now, because no task serves all (see ``group_demand``)."""
        self.steps: dict[str, int] = {}
        """Server -> the only step that ``run_episodes`` wants episodes of; empty = any."""
        self._reserve_s, self.outage_limit_s = reserve_s, outage_limit_s
        self.when_trained: WhenTrained = when_trained
        self._order: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that this group was made with, for one like it."""
        return {
            "roles": self.cast.roles,
            "externals": self.cast.externals,
            "reserve_s": self._reserve_s,
            "when_trained": self.when_trained,
            "outage_limit_s": self.outage_limit_s,
        }

    @property
    def usage(self) -> dict[str, Usage]:
        """What external models have used in all episodes of this group, by role."""
        return self.book.by_role()

    def ordered(self) -> Move[tuple[str, ...]]:
        """The servers in order of their ids, which all groups agree on; asked once."""
        if not self._order:
            statuses = yield from all_of({s: calls.status() for s in self.cast.servers})
            ids = {s: cast("Status", answer).server_id for s, answer in statuses.items()}
            self._order = tuple(sorted(ids, key=lambda s: (ids[s], s)))
        return self._order

    def taking(self, request: GrantRequest) -> Move[GroupGrant]:
        """The program that asks all servers for one episode."""
        order = yield from self.ordered()
        plan = TakePlan(order, request, self.steps, self.guests, self._reserve_s, self.when_trained)
        return (yield from take(self.cast, plan))

    def request_for(
        self, task_id: str, kind: EpisodeKind, grant_timeout_s: float, **more: object
    ) -> GrantRequest:
        """A request for one episode; client ids are put in where it is sent."""
        wait_s = min(LONG_POLL_S, grant_timeout_s)
        return GrantRequest.model_validate(
            {"client_id": ANYBODY, "kind": kind, "task_id": task_id, "wait_s": wait_s, **more}
        )

    def is_granted(self, grant: GroupGrant, request: GrantRequest) -> bool:
        """Whether the episode may begin; False = ask again.

        Raises:
            TrainingComplete: no train episode will be granted any more.
        """
        if grant.outcome is GrantOutcome.TRAINING_COMPLETE:
            raise TrainingComplete(
                f"Training is complete at step {grant.step}; task {request.task_id!r} was not granted.",
                hint="Use kind='eval' to go on with the trained weights.",
                step=grant.step,
            )
        return grant.outcome is GrantOutcome.GRANTED

    def timeout(self, grant: GroupGrant, request: GrantRequest, timeout_s: float) -> WaitTimeout:
        """The error for an episode that was not granted in time."""
        return WaitTimeout(
            f"No episode of task {request.task_id!r} was granted by all servers within {timeout_s:.0f} s: {grant.reason}.",
            hint="Look at `swarm status` of that server; a longer grant_timeout_s waits longer.",
        )
