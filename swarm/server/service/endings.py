"""How episodes end: finish, abort, expiry, a lost client, a group that was dropped, a step that went on without them.

Every ending is journalled before it is answered, and wakes whoever waits for what it frees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from swarm.protocol.episodes import AbortRequest, FinishReply, FinishRequest
from swarm.protocol.errors import JournalFailed
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason
from swarm.server.service.core import GROUP_DROPPED, SEAT_FORGONE, Core
from swarm.server.service.episodes import Episode, bytes_of
from swarm.server.service.finish_check import check_finish, choices_of, masked_calls
from swarm.server.service.groups import Group
from swarm.server.service.guarding.judge import judge_episode, with_rewards_zeroed
from swarm.server.tracking.account import dropped, whole_episode, with_fates
from swarm.triggers import Point, hit

log = logging.getLogger(__name__)

LONGEST_REASON = 2000
"""Characters of an abort's reason that are kept; a client may send a whole traceback."""

_LOSS = {
    EpisodeState.ABORTED: FateReason.EPISODE_ABORTED,
    EpisodeState.EXPIRED: FateReason.EPISODE_EXPIRED,
}


class Endings:
    """Ends episodes. ``changed`` is called after each ending that the pool or a waiting grant may care about."""

    def __init__(self, core: Core, changed: Callable[[], None]) -> None:
        self._core = core
        self._changed = changed

    def finish(self, episode_id: str, request: FinishRequest) -> FinishReply:
        """End with a reward; the first finish wins, a repeat and a late one get the answer that stands.

        Raises:
            NotFoundError: No such episode.
            RewardError: See ``check_finish``; the episode stays open.
        """
        episode = self._core.book.get(episode_id)
        if episode is None:
            return self.past(episode_id)
        self._core.clients.seen(episode.client_id)
        if not episode.is_open:
            return self.answer(episode)
        if episode.prepared:
            return self.complete(episode)  # what was prepared is the first word
        if self.refuses_code(episode, request.code_hash):
            return self.answer(episode)
        check_finish(episode, request)
        judged = self.guard(episode, request)
        if judged is None:
            return self.answer(episode)
        request = judged
        self.take_in(episode, request)
        episode.reward, episode.metrics = request.reward, dict(request.metrics)
        return self.complete(episode)

    def guard(self, episode: Episode, request: FinishRequest) -> FinishRequest | None:
        """Let the config's episode guard judge a checked finish; returns it as it counts, or None when that ended the episode.

        A step drops at most as many episodes as it consumes; what is found after that is masked, so that it comes to an end.
        """
        core = self._core
        config = core.config.guard
        if episode.kind is not EpisodeKind.TRAIN or not config.actions():
            return request
        batch, fate = core.pool.batch, FateReason.GUARD
        room = core.ledger.episodes_dropped[fate.value] < batch.tasks * batch.repeat
        found = judge_episode(config, core.tokenizer, episode.calls, may_drop=room)
        episode.tree.calls = found.calls
        if found.dropped:
            self.lose(episode, EpisodeState.ABORTED, found.dropped, fate)
            return None
        return with_rewards_zeroed(request, found, config.reward)

    def take_in(self, episode: Episode, request: FinishRequest) -> None:
        """Put what a checked finish says of agents and tokens into the episode; the last one counts until it ends."""
        choices = choices_of(request.tokens)
        episode.tree.calls = masked_calls(episode.calls, choices)
        episode.details = msgspec.structs.replace(
            episode.details, rewards=dict(request.rewards), tokens=choices
        )

    def complete(self, episode: Episode) -> FinishReply:
        """Record an open episode as finished, with its reward or the one that was prepared, and take it into the pool."""
        if episode.prepared:
            episode.reward = episode.details.prepared_reward
            episode.metrics = dict(episode.details.prepared_metrics)
        self._end(episode, EpisodeState.FINISHED, "")
        episode.accepted = True
        if episode.kind is EpisodeKind.TRAIN and not self._into_pool(episode):
            self._drop_finished(episode, episode.cast_out or FateReason.GROUP_DROPPED)
        episode.answer = episode.reply(self._core.step)
        self._changed()
        hit(Point.FINISH_BEFORE_ANSWER)
        return episode.answer

    def _into_pool(self, episode: Episode) -> bool:
        """Take a finished episode in; False when its group or its seat is gone (only a prepared one outlives them)."""
        pool = self._core.pool
        group = pool.groups.get(episode.group_id)
        seated = group is not None and group.open.get(episode.repeat_index) is episode
        return seated and pool.finish(episode)

    def refuses_code(self, episode: Episode, code_hash: str) -> bool:
        """End an open episode whose client's code changed since its grant; returns whether it did."""
        granted = episode.details.code_hash
        if not code_hash or code_hash == granted:
            return False
        fate = FateReason.CODE_CHANGED
        why = f"{fate.value}: granted to code {granted!r}, finished by code {code_hash!r}"
        self.lose(episode, EpisodeState.ABORTED, why, fate)
        self._core.events.try_add(
            "code_changed",
            incarnation=self._core.incarnation,
            step=self._core.step,
            episode_id=episode.episode_id,
            old=granted,
            new=code_hash,
        )
        return True

    def abort(self, episode_id: str, request: AbortRequest) -> FinishReply:
        """End without a reward. Safe to call twice and after a finish, which then stands.

        Raises:
            NotFoundError: No such episode.
        """
        episode = self._core.book.get(episode_id)
        if episode is None:
            return self.past(episode_id)
        self._core.clients.seen(episode.client_id)
        if episode.is_open:
            self.lose(
                episode,
                EpisodeState.ABORTED,
                request.reason[:LONGEST_REASON] or "aborted by the client",
            )
        return self.answer(episode)

    def lose(
        self, episode: Episode, state: EpisodeState, reason: str, fate: FateReason | None = None
    ) -> None:
        """End an open episode that will not finish, and apply its group's rule; ended ones are left alone.

        A reservation that nobody used only frees its seat: it was never a member. ``fate``: of what it sampled, when the state
        does not say it.
        """
        if not episode.is_open:
            return
        unused = episode.reserved
        if episode.prepared and state is EpisodeState.EXPIRED:
            fate = FateReason.NOT_COMMITTED
        fate = fate or _LOSS[state]
        self._end(episode, state, reason, fate)
        if not unused and fate not in (FateReason.CODE_CHANGED, FateReason.GUARD):
            self._core.clients.failed(episode.client_id)
        if episode.kind is EpisodeKind.EVAL:
            self._free_eval(episode)
        elif unused:
            self._core.pool.unreserve(episode)
        else:
            self._lose_member(episode, fate)
        self._changed()

    def lose_client(self, client_id: str, why: str) -> int:
        """End all open episodes of a client but the prepared ones, whose promise outlives it; returns how many."""
        lost = [e for e in self._core.book.of_client(client_id) if not e.prepared]
        for episode in lost:
            self.lose(episode, EpisodeState.ABORTED, why)
        if lost:
            self._core.events.try_add(
                "client_lost", client_id=client_id, episodes=len(lost), why=why
            )
        return len(lost)

    def leave_behind(self, why: str, *, only: Sequence[Episode] | None = None) -> list[Episode]:
        """End the open train episodes (or ``only`` these), but the prepared ones: the step goes on without them. Returns them."""
        there = self._core.book.open(EpisodeKind.TRAIN) if only is None else only
        late = [e for e in there if not e.prepared]
        fate = FateReason.LEFTOVER
        for episode in late:
            self._core.pool.release(episode)
            self._end(episode, EpisodeState.ABORTED, fate.value, fate)
            episode.missed = why
            self._core.drop(episode, FateReason.LEFTOVER)
        return late

    def outdate(self, episodes: Sequence[Episode], why: str) -> None:
        """Take train episodes out of the pool that hold tokens too old for any step to come; their seats are free again."""
        core, fate = self._core, FateReason.STALE
        for episode in episodes:
            episode.missed = why
            if episode.is_open:
                core.pool.release(episode)
                self._end(episode, EpisodeState.ABORTED, fate.value, fate)
                core.drop(episode, fate)
            else:
                core.pool.withdraw(episode)
                episode.accepted = False
                self._drop_finished(episode, fate)

    def end_all(self, reason: str) -> None:
        """End every open episode because the engine stops; group rules do not apply. Prepared ones stay: a commit may come.

        They end also when the journal cannot record it (a full disk may be why the engine stops); it then finds them open
        when the server resumes, and ends them.
        """
        for episode in [e for e in self._core.book.open() if not e.prepared]:
            if episode.kind is EpisodeKind.TRAIN:
                self._core.pool.release(episode)
            else:
                self._free_eval(episode)
            try:
                self._end(episode, EpisodeState.ABORTED, reason, FateReason.EPISODE_ABORTED)
                if episode.kind is EpisodeKind.TRAIN:
                    self._core.drop(episode, FateReason.EPISODE_ABORTED)
            except JournalFailed as error:
                log.error("Episode %s ends unrecorded: %s", episode.episode_id, error.message)  # noqa: TRY400
                if episode.is_open:
                    self._close(episode, EpisodeState.ABORTED, reason)
        self._core.bell.ring()

    def _free_eval(self, episode: Episode) -> None:
        """Give the number of a lost eval episode to the next one of its item, which then samples the same tokens."""
        if episode.step == self._core.trained_step:
            self._core.eval_slots.give_back(episode.group_id, episode.repeat_index)

    def forsake(self, reason: str) -> None:
        """End what is open of a run that is over; no pool and no account of the new one hears of it."""
        for episode in self._core.book.open():
            self._end(episode, EpisodeState.ABORTED, reason, FateReason.EPISODE_ABORTED)

    def _lose_member(self, episode: Episode, fate: FateReason) -> None:
        self._core.drop(episode, fate)
        group = self._core.pool.groups.get(episode.group_id)
        if group is None or episode.cast_out:
            return  # a prepared one that outlived its group or its seat
        loss = self._core.pool.lose(episode)
        if loss.forgone:
            self.group_event(SEAT_FORGONE, group)
        if not loss.dropped:
            return
        if group.shared:
            self._core.queues.put_back([(group.task_set, group.task_id)])
        self.group_event(
            GROUP_DROPPED,
            group,
            rule=self._core.config.batch.group_rule.value,
            because_of=episode.episode_id,
        )
        why = f"group {group.group_id} was dropped: its member {episode.episode_id} was lost"
        for member in loss.outcast:
            self._cast_out(member, FateReason.GROUP_DROPPED, why)

    def discard_group(self, group: Group, fate: FateReason, why: str) -> int:
        """Drop a group for another reason than a lost member; returns how many episodes are out with it."""
        loss = self._core.pool.discard(group)
        if group.shared:
            self._core.queues.put_back([(group.task_set, group.task_id)])
        self.group_event(GROUP_DROPPED, group, rule=fate.value, because_of="")
        for member in loss.outcast:
            self._cast_out(member, fate, why)
        return len(loss.outcast)

    def group_event(self, kind: str, group: Group, **data: str) -> None:
        """Record what happened to a group of the open step; a resumed server reads it (``resume``)."""
        self._core.events.try_add(
            kind,
            incarnation=self._core.incarnation,
            step=self._core.step,
            group_id=group.group_id,
            task_set=group.task_set,
            task_id=group.task_id,
            **data,
        )

    def _cast_out(self, member: Episode, fate: FateReason, why: str) -> None:
        member.missed = why
        if member.prepared:
            member.cast_out = (
                fate  # its commit will be taken, and then dropped like a finish that came before
            )
            return
        if not member.is_open:
            self._drop_finished(member, fate)
            member.accepted = False
            return
        self._end(member, EpisodeState.ABORTED, fate.value, fate)
        self._core.drop(member, fate)

    def _drop_finished(self, episode: Episode, fate: FateReason) -> None:
        """Book a finished episode whose group is out; what it was told at its finish stands."""
        self._core.journal.drop_episodes({episode.episode_id: fate.value})
        self._core.drop(episode, fate)

    def _end(
        self,
        episode: Episode,
        state: EpisodeState,
        reason: str,
        fate: FateReason = FateReason.NONE,
    ) -> None:
        """Record the end and close; ``fate`` of what a train episode sampled, when no batch can take it."""
        core, ended_at = self._core, self._core.clock.time()
        prepared = episode.prepared
        details = msgspec.structs.replace(
            episode.details,
            divergences=episode.tree.divergences,
            prepared_until=None,
            prepared_reward=None,
            prepared_metrics={},
            unused=episode.reserved and state is not EpisodeState.FINISHED,
        )
        finished = state is EpisodeState.FINISHED
        hit(Point.FINISH_BEFORE_JOURNAL if finished else Point.LOSS_BEFORE_JOURNAL)
        if finished:
            core.journal.record_finish(
                episode.episode_id,
                reward=episode.reward,
                metrics=episode.metrics,
                calls=episode.calls,
                ended_at=ended_at,
                details=details,
                prepared=prepared,
                pictures=bytes_of(episode),
            )
        else:
            core.journal.record_end(
                episode.episode_id,
                state=state,
                reason=reason,
                ended_at=ended_at,
                calls=episode.calls,
                details=details,
                dropped=fate.value if episode.kind is EpisodeKind.TRAIN else "",
                prepared=prepared,
                pictures=bytes_of(episode),
            )
        hit(Point.FINISH_AFTER_JOURNAL if finished else Point.LOSS_AFTER_JOURNAL)
        episode.details = details
        episode.tree.pictures = {}  # the journal has them
        self._close(episode, state, reason)

    def _close(self, episode: Episode, state: EpisodeState, reason: str) -> None:
        """End in memory what the journal knows to have ended, and what is pending of it in the engine."""
        core = self._core
        episode.end(state, reason, core.clock.time())
        core.book.closed(episode)
        core.clients.ended(episode)
        core.traffic.episode(episode.kind, episode.state)
        core.recent.lost(episode)
        if episode.kind is EpisodeKind.EVAL:
            core.ledger.add_eval(episode.calls)
            core.eval_prompts.add(episode.calls)
            unused = whole_episode(episode.calls, dropped(FateReason.EVAL))
            episode.tree.calls = with_fates(episode.calls, unused)
        self.quiet(episode)

    def quiet(self, episode: Episode) -> None:
        """Abort what is pending of an episode that takes no calls any more."""
        core = self._core
        for request_id in episode.pending:
            if core.engine is not None:
                core.engine.abort(request_id)
        if episode.pending:
            core.bell.ring()

    def answer(self, episode: Episode) -> FinishReply:
        """Return what the finish (or abort) of an ended episode is told: the first answer, or why it comes too late."""
        core = self._core
        reply = episode.answer or episode.reply(core.step)
        if reply.accepted or episode.missed or core.step <= episode.step:
            return reply
        late = f"{reply.reason}; {self._missed(episode.step, episode.policy_version)}"
        return reply.model_copy(update={"reason": late})

    def past(self, episode_id: str) -> FinishReply:
        """Answer for an episode of an earlier step or process, from the journal.

        Raises:
            NotFoundError: No such episode.
        """
        record = self._core.journal.episode(episode_id, calls=False)
        accepted = record.state is EpisodeState.FINISHED  # as its first finish was told
        reason = record.reason or record.dropped
        if not accepted:
            why = reason or "it did not survive a restart of the server"
            reason = f"{why}; {self._missed(record.step, record.policy_version)}"
        return FinishReply(
            episode_id=episode_id,
            state=record.state,
            accepted=accepted,
            reason=reason,
            step=self._core.step,
        )

    def _missed(self, step: int, version: int) -> str:
        core = self._core
        return (
            f"it was granted at step {step} for policy version {version}, "
            f"the server is at step {core.step}, version {core.version}"
        )
