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

from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.errors import EpisodeGone, SwarmError
from swarm.protocol.messages import PolicyVersion
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.server.journal.records import EpisodeDetails
from swarm.server.service.agents import sign_key, v1_url
from swarm.server.service.code_versions import CodeVersions
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.lifecycle import SERVES_EVALS
from swarm.server.service.seating import Seat, Seating
from swarm.server.service.staleness import holds_grants
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)

GIVEN_LIMIT = 1024
"""Grants remembered by name; an answer that was lost is asked for again within seconds."""


@dataclass(slots=True, eq=False)
class _Held:
    request: GrantRequest
    base_url: str
    answer: asyncio.Future[Grant]


class Grants:
    """The queue of held grant requests and the making of episodes."""

    def __init__(
        self, core: Core, abandon: Callable[[Episode, str], None], versions: CodeVersions
    ) -> None:
        self._core = core
        self._versions = versions
        self._abandon = abandon
        self._held: deque[_Held] = deque()
        self._seating = Seating(core, lambda: (held.request for held in self._held), self.pump)
        self._given: dict[tuple[str, str], str] = {}
        """Client and its name for the asking -> id of the episode that it was given, oldest first."""

    async def grant(self, request: GrantRequest, base_url: str) -> Grant:
        """Return an episode, or hold the request up to ``wait_s`` and then answer WAIT with the reason.

        Requests are served in the order of their arrival, as far as the step can use what they ask for.
        """
        self._core.clients.seen(request.client_id)
        self._seating.check(request)
        request = self._versions.note(request)
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
        for held in list(self._held):
            if not held.answer.done():  # else its time ended, or its asker left
                self._answer(held)
        self._held = deque(held for held in self._held if not held.answer.done())

    def _answer(self, held: _Held) -> None:
        """Answer a held request if that is possible now; a failure is its asker's and nobody else's."""
        try:
            answer = self._try(held.request, held.base_url)
        except SwarmError as error:
            held.answer.set_exception(error)
            return
        if not isinstance(answer, str):
            held.answer.set_result(answer)
        elif self._stale(held.request):
            held.answer.set_result(self._without(GrantOutcome.WAIT, answer))

    def waiting(self) -> int:
        """Return how many requests are held."""
        return sum(not held.answer.done() for held in self._held)

    def _give_up(self, held: _Held) -> None:
        """The asker left: an episode that was granted in the same instant is nobody's and must not hold its seat."""
        if held.answer.done() and not held.answer.cancelled() and not held.answer.exception():
            episode = self._core.book.get(held.answer.result().episode_id)
            if episode is not None:
                self._abandon(episode, "the asker left before the grant reached it")

    def _time_out(self, held: _Held) -> None:
        if not held.answer.done():
            try:
                answer = self._try(held.request, held.base_url)
            except SwarmError as error:
                held.answer.set_exception(error)
                return
            if isinstance(answer, str):
                answer = self._without(GrantOutcome.WAIT, answer)
            held.answer.set_result(answer)

    def _stale(self, request: GrantRequest) -> bool:
        """Whether waiting is pointless: the step asked for has passed."""
        return request.step is not None and request.step < self._core.step_for(request.kind)

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
        self._versions.make_room(request)
        seat = self._seating.find(request)
        if isinstance(seat, str):
            return seat
        return self._granted(self._seated(request, seat), base_url)

    def _seated(self, request: GrantRequest, seat: Seat) -> Episode:
        """Make the episode of a seat; when it cannot be recorded the seat is as it was."""
        group = seat.group
        if not request.task_id:
            request = request.model_copy(update={"task_id": group.task_id})
        try:
            episode = self._episode(request, group.group_id, group.free_seat(), seat)
        except BaseException:
            self._seating.undo(seat)
            raise
        self._seating.sit(seat, episode)
        return episode

    def _must_wait(self, request: GrantRequest) -> str:
        core = self._core
        step = core.step_for(request.kind)
        if request.step is not None and request.step != step:
            verb = "has passed" if request.step < step else "has not begun"
            return f"step {request.step} {verb}; the server is at step {step}"
        state = core.lifecycle.state
        if request.kind is EpisodeKind.EVAL:
            return "" if state in SERVES_EVALS else f"the engine is {state.value}"
        if state is not EngineState.ROLLING:
            return f"the engine is {state.value}"
        if core.evals.holds(core.step):
            return f"the evaluation of step {core.step} is not closed yet"
        return holds_grants(core)

    def _eval(self, request: GrantRequest, base_url: str) -> Grant:
        task = f"{request.task_set}/{request.task_id}"
        group_id, index = self._core.eval_slots.take(self._core.trained_step, task)
        try:
            episode = self._episode(request, group_id, index)
        except BaseException:
            self._core.eval_slots.give_back(group_id, index)
            raise
        return self._granted(episode, base_url)

    def _episode(
        self, request: GrantRequest, group_id: str, index: int, seat: Seat | None = None
    ) -> Episode:
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
            step=core.step_for(request.kind),
            policy_version=core.version,
            granted_at=core.clock.time(),
            started=now,
            last_active=now,
            idle_deadline_s=request.idle_deadline_s or limits.idle_deadline_s,
            total_deadline_s=max(limits.total_deadline_s, request.idle_deadline_s or 0.0),
            tree=EpisodeTree(core.tokenizer),
            details=EpisodeDetails(
                code_hash=request.code_hash, shared=seat is not None and seat.group.shared
            ),
            reserve_s=request.reserve_s or 0.0,
        )
        hit(Point.GRANT_BEFORE_JOURNAL)
        with core.journal.together():
            core.journal.record_grant(episode.record())
            if seat is not None:
                self._seating.record(seat)
            if request.cursor is not None:
                core.client_notes.advance(request.client_id, request.cursor, core.incarnation)
        hit(Point.GRANT_AFTER_JOURNAL)
        core.book.add(episode)
        if request.request_id:
            self._given[request.client_id, request.request_id] = episode.episode_id
            if len(self._given) > GIVEN_LIMIT:
                del self._given[next(iter(self._given))]
        return episode

    def confirm(self, episode_id: str, base_url: str) -> Grant:
        """Make a reservation an episode like any other. Safe to call twice; of one that was none it says the grant again.

        Raises:
            NotFoundError: No such episode.
            EpisodeGone: It has ended; a reservation ends by itself when nobody confirms it.
        """
        episode = self._core.book.get(episode_id)
        if episode is None or not episode.is_open:
            record = self._core.journal.episode(episode_id, calls=False)
            why = episode.why_over() if episode else record.reason or record.state.value
            raise EpisodeGone(
                f"Episode {episode_id!r} is over: {why}.",
                hint="Ask for a new episode.",
                episode_id=episode_id,
            )
        self._core.clients.seen(episode.client_id)
        episode.confirm(self._core.clock.monotonic())
        return self._granted(episode, base_url)

    def _granted(self, episode: Episode, base_url: str) -> Grant:
        core = self._core
        return Grant(
            outcome=GrantOutcome.GRANTED,
            step=episode.step,
            policy_version=PolicyVersion(incarnation=core.incarnation, n=episode.policy_version),
            episode_id=episode.episode_id,
            task_id=episode.task_id,
            api_key=sign_key(core, episode),
            base_url=v1_url(base_url),
            group_id=episode.group_id,
            repeat_index=episode.repeat_index,
        )

    def _without(self, outcome: GrantOutcome, reason: str) -> Grant:
        core = self._core
        return Grant(
            outcome=outcome, step=core.step, policy_version=core.policy_version, reason=reason
        )
