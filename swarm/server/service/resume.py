"""Puts a run back as the journal knows it: position, pool of the open step, account, eval rounds."""

from __future__ import annotations

from collections.abc import Sequence

from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason
from swarm.server.journal.records import EpisodeRecord, EvalRound, ResumeState
from swarm.server.service.commits import promise
from swarm.server.service.consent import AGREED
from swarm.server.service.core import EPISODE_DROPPED, GROUP_DROPPED, SEAT_FORGONE, Core
from swarm.server.service.episodes import Episode
from swarm.server.service.evals import EvalRounds
from swarm.server.service.pending import policy_of
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.triggers import Point, hit


def restore(core: Core, state: ResumeState, tokenizer: ChatTokenizer) -> None:
    """Set ``core`` to where ``state`` ended.

    Episodes that were open are ended in the journal, they do not survive; prepared ones do, and their promise begins anew,
    because nobody could have kept it while the server was away.
    """
    hit(Point.RESUME_LOADED)
    core.configured = state.config
    core.incarnation = state.incarnation
    pending = state.pending if state.config.asynchronous.enabled else None
    core.ahead = int(pending is not None)  # its step has ended, and the next one was open
    core.step, core.version = state.step + core.ahead, state.policy_version
    core.fingerprint = state.fingerprint
    core.evals = EvalRounds(state.config.eval_gate)
    for round_ in state.eval_rounds:
        core.evals.restore(round_.step, outcome_of(round_))
    _end_orphans(core, state.orphans)
    hit(Point.RESUME_ORPHANS_ENDED)
    core.owed = state.metrics[-1].mix_owed if state.metrics else {}
    if pending is not None:
        core.owed = policy_of(core, pending)["mix_owed"]
    core.open_step()
    core.consent.restarted()
    prepared = [record for record in state.prepared if record.kind is EpisodeKind.TRAIN]
    _restore_groups(core, [*state.pool, *prepared])
    _restore_events(core)
    for record in state.pool:
        _restore_member(core, record, tokenizer)
    for record in state.prepared:
        _restore_prepared(core, record, tokenizer)
    for record in core.journal.eval_episodes(step=core.trained_step):
        if record.state is EpisodeState.FINISHED:
            core.eval_slots.restore(core.trained_step, record.group_id, record.repeat_index)
    core.events.add(
        "resumed",
        step=state.step,
        pool=len(state.pool),
        prepared=len(state.prepared),
        orphans=len(state.orphans),
    )


def _end_orphans(core: Core, orphans: Sequence[EpisodeRecord]) -> None:
    for orphan in orphans:
        core.journal.record_end(
            orphan.episode_id,
            state=EpisodeState.ABORTED,
            reason="the server restarted",
            ended_at=core.clock.time(),
            details=orphan.details,
            dropped=FateReason.EPISODE_ABORTED.value if orphan.kind is EpisodeKind.TRAIN else "",
        )


def outcome_of(round_: EvalRound) -> str:
    """Return ``closed``, ``incomplete`` or ``missed``."""
    if round_.missed:
        return "missed"
    return "closed" if round_.completed >= round_.planned else "incomplete"


def group_index(group_id: str) -> int:
    """Return the number of a group within its step: 3 for ``s7.g3``."""
    return int(group_id.rpartition("g")[2])


def _restore_groups(core: Core, members: Sequence[EpisodeRecord]) -> None:
    """Open the groups of the open step again, also those that have no member left: each is a try, and its task is out.

    ``members`` may be of earlier steps (asynchronous mode): their groups were carried over.
    """
    first = core.journal.first_of_groups(core.step)
    known = {record.group_id for record in first}
    first += [record for record in members if record.group_id not in known]
    for record in sorted(first, key=lambda r: group_index(r.group_id)):
        group = core.pool.restore_group(
            record.group_id, record.task_set, record.task_id, record.details.code_hash
        )
        group.shared = record.details.shared


def _restore_member(core: Core, record: EpisodeRecord, tokenizer: ChatTokenizer) -> None:
    episode = _episode(core, record, tokenizer)
    episode.accepted = True
    core.book.add(episode)
    core.pool.finish(episode)


def _restore_prepared(core: Core, record: EpisodeRecord, tokenizer: ChatTokenizer) -> None:
    episode = _episode(core, record, tokenizer)
    promise(episode, core.clock.monotonic())
    core.book.add(episode)
    if record.kind is EpisodeKind.EVAL:
        if record.step == core.trained_step:
            core.eval_slots.restore(record.step, record.group_id, record.repeat_index)
        return
    group = core.pool.groups.get(record.group_id)
    if group is not None and not group.dropped:
        core.pool.seat(group, episode)


def _episode(core: Core, record: EpisodeRecord, tokenizer: ChatTokenizer) -> Episode:
    tree = EpisodeTree(tokenizer)
    tree.calls = list(record.calls)
    tree.divergences = record.details.divergences
    limits = core.config.episode
    now, age_s = core.clock.monotonic(), core.clock.time() - record.granted_at
    return Episode(
        episode_id=record.episode_id,
        kind=record.kind,
        client_id=record.client_id,
        task_set=record.task_set,
        task_id=record.task_id,
        group_id=record.group_id,
        repeat_index=record.repeat_index,
        step=record.step,
        policy_version=record.policy_version,
        granted_at=record.granted_at,
        started=now - max(0.0, age_s),
        last_active=now,
        idle_deadline_s=limits.idle_deadline_s,
        total_deadline_s=limits.total_deadline_s,
        tree=tree,
        state=record.state,
        reward=record.reward,
        metrics=record.metrics,
        ended_at=record.ended_at,
        details=record.details,
    )


def _restore_events(core: Core) -> None:
    """Take groups and episodes that the open step had dropped already from the event log."""
    seen = 0
    while page := core.journal.events_after(seen):
        seen = page[-1].seq
        for event in page:
            data = event.data
            if (data.get("incarnation"), data.get("step")) != (core.incarnation, core.step):
                continue
            if event.kind == EPISODE_DROPPED:
                core.ledger.restore_drop(data)
            elif event.kind == GROUP_DROPPED:
                group = core.pool.restore_group(data["group_id"], data["task_set"], data["task_id"])
                by_rule = data.get("rule") != FateReason.CODE_CHANGED
                core.pool.restore_drop(group) if by_rule else core.pool.discard(group)
            elif event.kind == SEAT_FORGONE:
                group = core.pool.groups.get(data["group_id"])
                if group is not None:  # else it was carried over, and nobody is left of it
                    core.pool.restore_forgone(group)
            elif event.kind == AGREED:
                core.consent.add(data["client_id"])
