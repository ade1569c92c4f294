"""Read-only views of the server's position: the pool, who waits on what, how two configurations differ."""

from __future__ import annotations

from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import ConfigChange, PoolSnapshot
from swarm.protocol.states import EngineState, EpisodeKind
from swarm.server.service import policies
from swarm.server.service.core import Core


def pool_snapshot(core: Core) -> PoolSnapshot:
    """Return what the open step has and needs; ``groups_to_open`` is 0 unless train grants are possible now."""
    pool, state = core.pool, core.lifecycle.state
    alive = list(pool.alive())
    grants = state is EngineState.ROLLING and not core.evals.holds(core.step)
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
    )


def waiting_for(core: Core, held_grants: int) -> str:
    """Say in words what the server is waiting for."""
    state = core.lifecycle.state
    if state is EngineState.OFFLINE:
        return "a start" if core.configured else "a configuration"
    if state is EngineState.BOOTING:
        return "the engine to boot"
    if state is EngineState.WEIGHT_SYNCING:
        return "the optimizer"
    if state is EngineState.TRAINED:
        return "nothing: training is complete, evaluation goes on"
    if state is EngineState.ROLLING_POST:
        return f"{core.book.open_count(EpisodeKind.TRAIN)} open train episodes to end"
    if core.evals.holds(core.step):
        left = core.evals.deadline_in_s(core.step, core.clock.monotonic())
        return f"the evaluation of step {core.step} to be closed (or {left:.0f} s)"
    pool = core.pool
    done = len(pool.completed)
    unit = f"{done} of {pool.target} groups complete"
    open_now = core.book.open_count(EpisodeKind.TRAIN)
    return f"episodes: {unit}, {open_now} open, {held_grants} requests held"


def changes_between(old: TrainConfig | None, new: TrainConfig) -> list[ConfigChange]:
    """Return the keys that differ, dotted, in the order of the schema; against None: against the defaults' absence."""
    before = _flat(old.model_dump(mode="json")) if old is not None else {}
    after = _flat(new.model_dump(mode="json"))
    return [
        ConfigChange(key=key, old=before.get(key), new=value)
        for key, value in after.items()
        if key not in before or before[key] != value
    ]


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
