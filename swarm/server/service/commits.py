"""The two halves of a finish over several servers: prepare promises that a commit will be taken, commit ends the episode.

A prepared episode takes no calls and outlives the drain of its step, its client's lease and a restart of the server; only
its commit, an abort, or the end of the promise ends it.
"""

from __future__ import annotations

import msgspec

from swarm.protocol.episodes import FinishReply, FinishRequest, PrepareReply
from swarm.protocol.errors import StateError
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.episodes import Episode, bytes_of
from swarm.server.service.finish_check import check_finish
from swarm.triggers import Point, hit

COMMIT_WITHIN_S = 30.0
"""How long a prepared finish is promised: longer than a client needs to ask the other servers, shorter than a person waits."""


class Commits:
    """Prepares finishes and commits them."""

    def __init__(self, core: Core, endings: Endings) -> None:
        self._core = core
        self._endings = endings

    def prepare(self, episode_id: str, request: FinishRequest) -> PrepareReply:
        """Check and journal a finish, and promise that a commit will be taken. Safe to call twice: the first one stands.

        Of an episode that has ended it says whether a commit would be answered with ``accepted``.

        Raises:
            NotFoundError: No such episode.
            RewardError: See ``check_finish``; the episode stays open and unprepared.
        """
        episode = self._core.book.get(episode_id)
        if episode is None:
            return _as_ended(self._endings.past(episode_id))
        self._core.clients.seen(episode.client_id)
        if episode.prepared:
            return self._promise(episode)
        if not episode.is_open or self._endings.refuses_code(episode, request.code_hash):
            return _as_ended(self._endings.answer(episode))
        check_finish(episode, request)
        judged = self._endings.guard(episode, request)
        if judged is None:
            return _as_ended(self._endings.answer(episode))
        self._record(episode, judged)
        return self._promise(episode)

    def commit(self, episode_id: str) -> FinishReply:
        """Finish a prepared episode. Safe to call twice; of one that has ended it tells how.

        Raises:
            NotFoundError: No such episode.
            StateError: It is open and was not prepared.
        """
        episode = self._core.book.get(episode_id)
        if episode is None:
            return self._endings.past(episode_id)
        self._core.clients.seen(episode.client_id)
        if not episode.is_open:
            return self._endings.answer(episode)
        if not episode.prepared:
            raise StateError(
                f"Episode {episode_id!r} was not prepared.",
                hint="Prepare it first (POST .../prepare), or finish it in one step (POST .../finish).",
                episode_id=episode_id,
            )
        return self._endings.complete(episode)

    def _record(self, episode: Episode, request: FinishRequest) -> None:
        core = self._core
        self._endings.take_in(episode, request)
        details = msgspec.structs.replace(
            episode.details,
            prepared_until=core.clock.time() + COMMIT_WITHIN_S,
            prepared_reward=request.reward,
            prepared_metrics=dict(request.metrics),
        )
        hit(Point.PREPARE_BEFORE_JOURNAL)
        pictures = bytes_of(episode)
        core.journal.record_prepared(episode.episode_id, details, episode.calls, pictures)
        hit(Point.PREPARE_AFTER_JOURNAL)
        episode.tree.pictures = {}
        episode.details = details
        episode.reserve_s = 0.0
        promise(episode, core.clock.monotonic())
        self._endings.quiet(episode)

    def _promise(self, episode: Episode) -> PrepareReply:
        left = episode.promised_until - self._core.clock.monotonic()
        return PrepareReply(
            episode_id=episode.episode_id, prepared=True, commit_within_s=max(0.0, left)
        )


def promise(episode: Episode, now: float) -> None:
    """Let the promise of a prepared episode run from ``now`` (monotonic seconds): at its prepare, or when it was restored."""
    episode.promise_s = COMMIT_WITHIN_S
    episode.promised_until = now + COMMIT_WITHIN_S


def _as_ended(reply: FinishReply) -> PrepareReply:
    return PrepareReply(episode_id=reply.episode_id, prepared=reply.accepted, reason=reply.reason)
