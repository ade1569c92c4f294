"""Puts a run back as the journal knows it: position, pool of the open step, account, eval rounds."""

from __future__ import annotations

from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.journal.records import EpisodeRecord, EvalRound, ResumeState
from swarm.server.service.core import EPISODE_DROPPED, GROUP_DROPPED, Core
from swarm.server.service.episodes import Episode
from swarm.server.service.evals import EvalRounds
from swarm.server.service.groups import Group
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.server.tracking.tokenizer import ChatTokenizer


def restore(core: Core, state: ResumeState, tokenizer: ChatTokenizer) -> None:
    """Set ``core`` to where ``state`` ended. Episodes that were open are ended in the journal; they do not survive."""
    core.configured = state.config
    core.incarnation = state.incarnation
    core.step, core.version = state.step, state.policy_version
    core.fingerprint = state.fingerprint
    core.evals = EvalRounds(state.config.eval_gate)
    for round_ in state.eval_rounds:
        core.evals.restore(round_.step, outcome_of(round_))
    for orphan in state.orphans:
        core.journal.record_end(
            orphan.episode_id,
            state=EpisodeState.ABORTED,
            reason="the server restarted",
            ended_at=core.clock.time(),
        )
    core.open_step()
    _restore_events(core)
    for record in sorted(_members_of_step(core, state), key=lambda r: group_index(r.group_id)):
        core.pool.restore_group(record.group_id, record.task_set, record.task_id)
    for record in state.pool:
        _restore_member(core, record, tokenizer)
    for record in core.journal.eval_episodes(step=core.step):
        if record.state is EpisodeState.FINISHED:
            core.eval_slots.restore(core.step, record.group_id, record.repeat_index)
    core.events.add("resumed", step=state.step, pool=len(state.pool), orphans=len(state.orphans))


def outcome_of(round_: EvalRound) -> str:
    """Return ``closed``, ``incomplete`` or ``missed``."""
    if round_.missed:
        return "missed"
    return "closed" if round_.completed >= round_.planned else "incomplete"


def group_index(group_id: str) -> int:
    """Return the number of a group within its step: 3 for ``s7.g3``."""
    return int(group_id.rpartition("g")[2])


def _members_of_step(core: Core, state: ResumeState) -> list[EpisodeRecord]:
    """Return the finished and the orphaned train episodes of the open step: their groups go on."""
    mine = [r for r in state.orphans if r.kind is EpisodeKind.TRAIN and r.step == core.step]
    return [*state.pool, *mine]


def _restore_member(core: Core, record: EpisodeRecord, tokenizer: ChatTokenizer) -> None:
    tree = EpisodeTree(tokenizer)
    tree.calls = list(record.calls)
    limits = core.config.episode
    episode = Episode(
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
        started=0.0,
        idle_deadline_s=limits.idle_deadline_s,
        total_deadline_s=limits.total_deadline_s,
        tree=tree,
        state=record.state,
        reward=record.reward,
        metrics=record.metrics,
        ended_at=record.ended_at,
        accepted=True,
    )
    core.book.add(episode)
    core.pool.finish(episode)


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
                core.ledger.restore_drop(
                    data["reason"], data["tokens"], data["calls"], data["divergences"]
                )
            elif event.kind == GROUP_DROPPED:
                group: Group = core.pool.restore_group(data["group_id"], "", "")
                core.pool.restore_drop(group)
