"""Granting episodes: what the open step still needs goes out at once, the rest waits in one fair queue.

Knows when a grant is possible and makes the episode; knows nothing of how episodes end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from swarm.protocol.messages import Grant, GrantRequest, PolicyVersion
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.server.service import policies
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Group
from swarm.server.tracking.episode_tree import EpisodeTree

log = logging.getLogger(__name__)

KEY_SLACK_S = 3600.0
"""An episode's key outlives its total deadline by this, so that a late caller is told 410 and not 401."""
GIVEN_LIMIT = 1024
"""Grants remembered by name; an answer that was lost is asked for again within seconds."""
EVAL_STATES = frozenset(
    {
        EngineState.ROLLING,
        EngineState.ROLLING_POST,
        EngineState.WEIGHT_SYNCING,
        EngineState.TRAINED,
    }
)


@dataclass(slots=True, eq=False)
class _Held:
    request: GrantRequest
    base_url: str
    answer: asyncio.Future[Grant]


class Grants:
    """The queue of held grant requests and the making of episodes."""

    def __init__(self, core: Core, abandon: Callable[[Episode, str], None]) -> None:
        self._core = core
        self._abandon = abandon
        self._held: deque[_Held] = deque()
        self._given: dict[tuple[str, str], str] = {}
        """Client and its name for the asking -> id of the episode that it was given, oldest first."""

    async def grant(self, request: GrantRequest, base_url: str) -> Grant:
        """Return an episode, or hold the request up to ``wait_s`` and then answer WAIT with the reason.

        Requests are served in the order of their arrival, as far as the step can use what they ask for.
        """
        self._core.clients.seen(request.client_id)
        self.pump()
        answer = self._try(request, base_url)
        if not isinstance(answer, str):
            return answer
        if request.wait_s <= 0 or self._stale(request):
            return self._without(GrantOutcome.WAIT, answer)
        held = _Held(request, base_url, asyncio.get_running_loop().create_future())
        self._held.append(held)
        timer = self._core.clock.call_later(request.wait_s, lambda: self._time_out(held))
        try:
            return await held.answer
        except asyncio.CancelledError:
            self._give_up(held)
            raise
        finally:
            timer.cancel()

    def pump(self) -> None:
        """Answer every held request that can be answered now, oldest first. Call after anything changed."""
        if not self._held:
            return
        waiting, self._held = self._held, deque()
        for held in waiting:
            if held.answer.done():
                continue  # its time ended, or its asker left
            answer = self._try(held.request, held.base_url)
            if not isinstance(answer, str):
                held.answer.set_result(answer)
            elif self._stale(held.request):
                held.answer.set_result(self._without(GrantOutcome.WAIT, answer))
            else:
                self._held.append(held)

    def waiting(self) -> int:
        """Return how many requests are held."""
        return sum(not held.answer.done() for held in self._held)

    def _give_up(self, held: _Held) -> None:
        """The asker left: an episode that was granted in the same instant is nobody's and must not hold its seat."""
        if held.answer.done() and not held.answer.cancelled():
            episode = self._core.book.get(held.answer.result().episode_id)
            if episode is not None:
                self._abandon(episode, "the asker left before the grant reached it")

    def _time_out(self, held: _Held) -> None:
        if not held.answer.done():
            answer = self._try(held.request, held.base_url)
            if isinstance(answer, str):
                answer = self._without(GrantOutcome.WAIT, answer)
            held.answer.set_result(answer)

    def _stale(self, request: GrantRequest) -> bool:
        """Whether waiting is pointless: the step asked for has passed."""
        return request.step is not None and request.step < self._core.step

    def _try(self, request: GrantRequest, base_url: str) -> Grant | str:
        """Return the final answer, or why to wait."""
        episode_id = self._given.get((request.client_id, request.request_id), "")
        given = self._core.book.get(episode_id)
        if given is not None and given.is_open:
            return self._granted(given, base_url)
        if request.kind is EpisodeKind.TRAIN and self._core.lifecycle.state is EngineState.TRAINED:
            return self._without(GrantOutcome.TRAINING_COMPLETE, "stop_at_step is reached")
        reason = self._must_wait(request)
        if reason:
            return reason
        if request.kind is EpisodeKind.EVAL:
            return self._eval(request, base_url)
        group = self._group(request)
        if isinstance(group, str):
            return group
        episode = self._episode(request, group.group_id, group.free_seat())
        self._core.pool.seat(group, episode)
        return self._granted(episode, base_url)

    def _must_wait(self, request: GrantRequest) -> str:
        core = self._core
        if request.step is not None and request.step != core.step:
            verb = "has passed" if request.step < core.step else "has not begun"
            return f"step {request.step} {verb}; the server is at step {core.step}"
        state = core.lifecycle.state
        if request.kind is EpisodeKind.EVAL:
            return "" if state in EVAL_STATES else f"the engine is {state.value}"
        if state is not EngineState.ROLLING:
            return f"the engine is {state.value}"
        if core.evals.holds(core.step):
            return f"the evaluation of step {core.step} is not closed yet"
        return ""

    def _group(self, request: GrantRequest) -> Group | str:
        """Return the group that takes the episode, or why none does."""
        pool = self._core.pool
        if policies.is_ready(pool):
            return f"step {pool.step} has all that it needs"
        if policies.episodes_room(pool) <= 0:
            return f"step {pool.step} has granted all the episodes that it can use"
        group = pool.unfilled(request.task_set, request.task_id)
        if group is not None:
            return group
        if not policies.may_open(pool):
            return f"step {pool.step} has opened all the groups that it can use"
        return pool.open_group(request.task_set, request.task_id)

    def _eval(self, request: GrantRequest, base_url: str) -> Grant:
        task = f"{request.task_set}/{request.task_id}"
        group_id, index = self._core.eval_slots.take(self._core.step, task)
        return self._granted(self._episode(request, group_id, index), base_url)

    def _episode(self, request: GrantRequest, group_id: str, index: int) -> Episode:
        core = self._core
        limits, now = core.config.episode, core.clock.monotonic()
        episode = Episode(
            episode_id=f"ep-{secrets.token_hex(8)}",
            kind=request.kind,
            client_id=request.client_id,
            task_set=request.task_set,
            task_id=request.task_id,
            group_id=group_id,
            repeat_index=index,
            step=core.step,
            policy_version=core.version,
            granted_at=core.clock.time(),
            started=now,
            last_active=now,
            idle_deadline_s=request.idle_deadline_s or limits.idle_deadline_s,
            total_deadline_s=max(limits.total_deadline_s, request.idle_deadline_s or 0.0),
            tree=EpisodeTree(core.tokenizer),
        )
        core.journal.record_grant(episode.record())
        core.book.add(episode)
        if request.request_id:
            self._given[request.client_id, request.request_id] = episode.episode_id
            if len(self._given) > GIVEN_LIMIT:
                del self._given[next(iter(self._given))]
        return episode

    def _granted(self, episode: Episode, base_url: str) -> Grant:
        core = self._core
        root = base_url.rstrip("/")
        expires = episode.granted_at + episode.total_deadline_s + KEY_SLACK_S
        return Grant(
            outcome=GrantOutcome.GRANTED,
            step=episode.step,
            policy_version=PolicyVersion(incarnation=core.incarnation, n=episode.policy_version),
            episode_id=episode.episode_id,
            api_key=core.keys.sign(episode.episode_id, expires),
            base_url=root if root.endswith("/v1") else f"{root}/v1",
            group_id=episode.group_id,
            repeat_index=episode.repeat_index,
        )

    def _without(self, outcome: GrantOutcome, reason: str) -> Grant:
        core = self._core
        return Grant(
            outcome=outcome, step=core.step, policy_version=core.policy_version, reason=reason
        )
