"""How episodes end: finish, abort, expiry, a lost client, a group that was dropped, a step that went on without them.

Every ending is journalled before it is answered, and wakes whoever waits for what it frees.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from swarm.protocol.errors import JournalFailed, RewardError
from swarm.protocol.messages import AbortRequest, FinishReply, FinishRequest
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason
from swarm.server.service.core import GROUP_DROPPED, Core
from swarm.server.service.episodes import Episode

log = logging.getLogger(__name__)

REWARD_LIMIT = 1e9
"""Largest magnitude of a reward: its square and sums of a batch stay far inside what the update can carry."""


class Endings:
    """Ends episodes. ``changed`` is called after each ending that the pool or a waiting grant may care about."""

    def __init__(self, core: Core, changed: Callable[[], None]) -> None:
        self._core = core
        self._changed = changed

    def finish(self, episode_id: str, request: FinishRequest) -> FinishReply:
        """End with a reward; the first finish wins, a repeat and a late one get the answer that stands.

        Raises:
            NotFoundError: No such episode.
            RewardError: A reward or metric that is not finite, a reward beyond ``REWARD_LIMIT``, or a train episode without one; it
                stays open.
        """
        episode = self._core.book.get(episode_id)
        if episode is None:
            return self._past(episode_id)
        self._core.clients.seen(episode.client_id)
        if not episode.is_open:
            return episode.answer or episode.reply(self._core.step)
        _check_finite(episode, request)
        episode.reward, episode.metrics = request.reward, dict(request.metrics)
        self._end(episode, EpisodeState.FINISHED, "")
        episode.accepted = True
        if episode.kind is EpisodeKind.TRAIN:
            self._core.pool.finish(episode)
        episode.answer = episode.reply(self._core.step)
        self._changed()
        return episode.answer

    def abort(self, episode_id: str, request: AbortRequest) -> FinishReply:
        """End without a reward. Safe to call twice and after a finish, which then stands.

        Raises:
            NotFoundError: No such episode.
        """
        episode = self._core.book.get(episode_id)
        if episode is None:
            return self._past(episode_id)
        self._core.clients.seen(episode.client_id)
        if episode.is_open:
            self.lose(episode, EpisodeState.ABORTED, request.reason or "aborted by the client")
        return episode.answer or episode.reply(self._core.step)

    def lose(self, episode: Episode, state: EpisodeState, reason: str) -> None:
        """End an open episode that will not finish, and apply its group's rule; ended ones are left alone."""
        if not episode.is_open:
            return
        self._end(episode, state, reason)
        if episode.kind is EpisodeKind.EVAL:
            if episode.step == self._core.step:
                self._core.eval_slots.give_back(episode.group_id, episode.repeat_index)
        else:
            self._lose_member(episode, state)
        self._changed()

    def lose_client(self, client_id: str, why: str) -> int:
        """End all open episodes of a client; returns how many."""
        lost = list(self._core.book.of_client(client_id))
        for episode in lost:
            self.lose(episode, EpisodeState.ABORTED, why)
        if lost:
            self._core.events.add("client_lost", client_id=client_id, episodes=len(lost), why=why)
        return len(lost)

    def leave_behind(self, why: str) -> list[Episode]:
        """End the open train episodes at a sync: the step goes on without them. Returns them."""
        late = self._core.book.open(EpisodeKind.TRAIN)
        for episode in late:
            self._core.pool.release(episode)
            self._end(episode, EpisodeState.ABORTED, FateReason.LEFTOVER.value)
            episode.missed = why
            self._core.drop(episode, FateReason.LEFTOVER)
        return late

    def end_all(self, reason: str) -> None:
        """End every open episode because the engine stops; group rules do not apply.

        They end also when the journal cannot record it (a full disk may be why the engine stops); it then finds them open
        when the server resumes, and ends them.
        """
        for episode in self._core.book.open():
            if episode.kind is EpisodeKind.TRAIN:
                self._core.pool.release(episode)
            try:
                self._end(episode, EpisodeState.ABORTED, reason)
                if episode.kind is EpisodeKind.TRAIN:
                    self._core.drop(episode, FateReason.EPISODE_ABORTED)
            except JournalFailed as error:
                log.error("Episode %s ends unrecorded: %s", episode.episode_id, error.message)  # noqa: TRY400
                if episode.is_open:
                    self._close(episode, EpisodeState.ABORTED, reason)
        self._core.bell.ring()

    def _lose_member(self, episode: Episode, state: EpisodeState) -> None:
        expired = state is EpisodeState.EXPIRED
        fate = FateReason.EPISODE_EXPIRED if expired else FateReason.EPISODE_ABORTED
        self._core.drop(episode, fate)
        loss = self._core.pool.lose(episode)
        if not loss.dropped:
            return
        self._core.events.add(
            GROUP_DROPPED,
            incarnation=self._core.incarnation,
            step=self._core.step,
            group_id=episode.group_id,
            rule=self._core.config.batch.group_rule.value,
            because_of=episode.episode_id,
        )
        for member in loss.outcast:
            self._cast_out(member, episode)

    def _cast_out(self, member: Episode, lost: Episode) -> None:
        why = f"group {member.group_id} was dropped: its member {lost.episode_id} was lost"
        if member.is_open:
            self._end(member, EpisodeState.ABORTED, FateReason.GROUP_DROPPED.value)
        else:
            self._core.journal.drop_episodes({member.episode_id: FateReason.GROUP_DROPPED.value})
            member.accepted = False
        member.missed = why
        self._core.drop(member, FateReason.GROUP_DROPPED)

    def _end(self, episode: Episode, state: EpisodeState, reason: str) -> None:
        core = self._core
        if state is EpisodeState.FINISHED:
            core.journal.record_finish(
                episode.episode_id,
                reward=episode.reward,
                metrics=episode.metrics,
                calls=episode.calls,
                ended_at=core.clock.time(),
            )
        else:
            core.journal.record_end(
                episode.episode_id,
                state=state,
                reason=reason,
                ended_at=core.clock.time(),
                calls=episode.calls,
            )
        self._close(episode, state, reason)

    def _close(self, episode: Episode, state: EpisodeState, reason: str) -> None:
        """End in memory what the journal knows to have ended, and what is pending of it in the engine."""
        core = self._core
        episode.end(state, reason, core.clock.time())
        core.book.closed(episode)
        if episode.kind is EpisodeKind.EVAL:
            core.ledger.add_eval(episode.calls)
        for request_id in episode.pending:
            if core.engine is not None:
                core.engine.abort(request_id)
        if episode.pending:
            core.bell.ring()

    def _past(self, episode_id: str) -> FinishReply:
        """Answer for an episode of an earlier step or process, from the journal."""
        record = self._core.journal.episode(episode_id, calls=False)
        taken = record.consumed_step is not None
        accepted = record.state is EpisodeState.FINISHED and (
            taken or record.kind is EpisodeKind.EVAL
        )
        reason = record.reason or record.dropped
        if not accepted:
            reason = (
                f"{reason}; it was granted at step {record.step} for policy version "
                f"{record.policy_version}, the server is at step {self._core.step}, "
                f"version {self._core.version}"
            )
        return FinishReply(
            episode_id=episode_id,
            state=record.state,
            accepted=accepted,
            reason=reason,
            step=self._core.step,
        )


def _check_finite(episode: Episode, request: FinishRequest) -> None:
    if request.reward is None and episode.kind is EpisodeKind.TRAIN:
        raise RewardError(
            f"Train episode {episode.episode_id!r} was finished without a reward.",
            hint="Send 'reward': a finite number; abort the episode when there is none.",
        )
    values = {"reward": request.reward, **request.metrics}
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise RewardError(
                f"{name!r} of episode {episode.episode_id!r} is {value!r}, not a finite number.",
                hint="Send a finite number, or abort the episode.",
            )
    if request.reward is not None and abs(request.reward) > REWARD_LIMIT:
        raise RewardError(
            f"'reward' of episode {episode.episode_id!r} is {request.reward!r}, beyond {REWARD_LIMIT:.0e}.",
            hint="Scale rewards down; only their differences within a group count.",
        )
