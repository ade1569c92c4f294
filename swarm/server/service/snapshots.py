"""Read-only views of the server's position: the pool, who waits on what."""

from __future__ import annotations

from collections import Counter
from typing import Any

from swarm.protocol.clients import ClientInfo
from swarm.protocol.pool import PoolSnapshot
from swarm.protocol.states import CollectionPolicy, EngineState, EpisodeKind
from swarm.server.service import policies
from swarm.server.service.core import Core
from swarm.server.service.groups import Pool
from swarm.server.service.staleness import holds_grants

NAMED = 3
"""Clients named in a sentence at most."""


def pool_snapshot(core: Core) -> PoolSnapshot:
    """Return what the open step has and needs; ``groups_to_open`` is 0 unless train grants are possible now."""
    pool, state = core.pool, core.lifecycle.state
    alive = list(pool.alive())
    held = core.evals.holds(core.step) or bool(holds_grants(core))
    grants = state is EngineState.ROLLING and not held
    complete = sum(group.complete for group in alive)
    return PoolSnapshot(
        step=core.step,
        policy_version=core.policy_version,
        state=state,
        tasks_target=pool.batch.tasks,
        repeat=pool.batch.repeat,
        groups_complete=complete,
        groups_open=len(alive) - complete,
        groups_to_open=policies.groups_to_open(pool) if grants else 0,
        episodes_finished=sum(len(group.finished) for group in alive),
        episodes_open=sum(len(group.open) for group in alive),
        wanted=pool.wanted() if grants else [],
        task_ids=[f"{group.task_set}/{group.task_id}" for group in pool.groups.values()],
        policy=pool.batch.policy,
        quota_left=_quota_left(pool, grants=grants),
        exhausted_queues=core.queues.exhausted(),
        **_votes(core),
    )


def _quota_left(pool: Pool, *, grants: bool) -> dict[str, int]:
    left = policies.quota_left(pool)
    return left if grants else dict.fromkeys(left, 0)


def _votes(core: Core) -> dict[str, Any]:
    """Return the fields that only matter under C4 and C5."""
    policy = core.pool.batch.policy
    if policy not in policies.BY_AGREEMENT:
        return {}
    return {
        "agreed": core.consent.agreed(),
        "agree_missing": core.consent.missing() if policy is CollectionPolicy.C4 else [],
        "takeable": policies.something_to_take(core.pool),
    }


def client_infos(core: Core, *, gone: bool = False) -> list[ClientInfo]:
    """Return who is connected, in order of registration, with ``gone`` then also who was."""
    infos = core.clients.infos(Counter(e.client_id for e in core.book.open()), gone=gone)
    cursor_of = core.client_notes.cursor
    return [
        info.model_copy(update={"cursor": cursor_of(info.client_id, core.incarnation)})
        for info in infos
    ]


def waiting_for(core: Core, held_grants: int) -> str:
    """Say in words what the server is waiting for."""
    state = core.lifecycle.state
    if state is EngineState.OFFLINE:
        return "a start" if core.configured else "a configuration"
    if state is EngineState.BOOTING:
        return "the engine to boot"
    if state is EngineState.WEIGHT_SYNCING:
        return "the optimizer"
    if state is EngineState.WEIGHT_EXPORTING:
        return "the checkpoint to be written"
    if state is EngineState.TRAINED:
        return "nothing: training is complete, evaluation goes on"
    if state is EngineState.ROLLING_POST:
        return f"{core.book.open_count(EpisodeKind.TRAIN)} open train episodes to end"
    if core.evals.holds(core.step):
        left = core.evals.deadline_in_s(core.step, core.clock.monotonic())
        return f"the evaluation of step {core.step} to be closed (or {left:.0f} s)"
    if core.ahead and policies.is_ready(core.pool):
        return f"the update of step {core.step} to end: the next batch is complete"
    open_now = core.book.open_count(EpisodeKind.TRAIN)
    words = (
        f"episodes: {policies.in_words(core.pool)}, {open_now} open, {held_grants} requests held"
    )
    return words + ("" if open_now else _for_members(core)) + _for_votes(core)


def _for_members(core: Core) -> str:
    """Return which groups lack members while nobody plays and no new group may be opened: only their tasks can go on."""
    if policies.groups_to_open(core.pool):
        return ""
    wanted = core.pool.wanted()
    tasks = ", ".join(f"{w.task_set}/{w.task_id}"[:80] for w in wanted[:NAMED])
    more = " and others" if len(wanted) > NAMED else ""
    return f"; {wanted[0].missing} more of task {tasks}{more}" if wanted else ""


def _for_votes(core: Core) -> str:
    """Return what C4 and C5 wait for besides episodes."""
    policy = core.pool.batch.policy
    if policy not in policies.BY_AGREEMENT:
        return ""
    if core.consent.given(policy):
        return "; the trainers agreed, and nothing is trainable yet"
    missing = core.consent.missing() if policy is CollectionPolicy.C4 else []
    who = ", ".join(missing[:NAMED]) + (" and others" if len(missing) > NAMED else "")
    return f"; the agreement of {who}" if missing else "; a trainer to agree"
