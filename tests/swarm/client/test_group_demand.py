"""What several servers need together, and that this never leaves them stuck."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.client.group_demand import demand_of
from swarm.client.group_planning import GroupPlanner
from swarm.client.group_source import Outage
from swarm.client.tasks import Task
from swarm.protocol.pool import PoolSnapshot, WantedTask
from swarm.protocol.states import CollectionPolicy, EngineState


def pool(step: int = 0, to_open: int = 0, **changes: Any) -> PoolSnapshot:
    values: dict[str, Any] = {
        "step": step,
        "policy_version": None,
        "state": EngineState.ROLLING,
        "tasks_target": 4,
        "repeat": 4,
        "groups_complete": 0,
        "groups_open": 0,
        "groups_to_open": to_open,
        "episodes_finished": 0,
        "episodes_open": 1,
        "wanted": [],
        "task_ids": [],
    }
    return PoolSnapshot.model_validate({**values, **changes})


def wants(*tasks: tuple[str, int]) -> list[WantedTask]:
    return [WantedTask(task_set="default", task_id=t, missing=n) for t, n in tasks]


def seats(found: PoolSnapshot) -> list[tuple[str, int]]:
    return [(w.task_id, w.missing) for w in found.wanted]


def test_new_groups_are_as_many_as_every_server_would_open_and_as_large_as_the_smallest() -> None:
    demand = demand_of({"a": pool(3, 4), "b": pool(7, 2, repeat=3)})
    assert (demand.pool.step, demand.pool.groups_to_open, demand.pool.repeat) == (3, 2, 3)
    assert demand.steps == {"a": 3, "b": 7}
    assert demand.guests == frozenset()


def test_a_missing_member_is_asked_for_where_every_other_server_has_its_seat_or_opens_a_group() -> (
    None
):
    a = pool(wanted=wants(("t1", 3), ("t2", 1)))
    assert seats(demand_of({"a": a, "b": pool(wanted=wants(("t1", 2)))}).pool) == [("t1", 2)]
    roomy = pool(to_open=1, repeat=2)
    assert seats(demand_of({"a": a, "b": roomy}).pool) == [("t1", 2), ("t2", 1)]


def test_quotas_of_a_mix_are_those_that_every_server_has_left() -> None:
    mixed = pool(to_open=4, quota_left={"math": 3, "code": 1})
    episodes = pool(to_open=4, quota_left={"math": 5}, policy=CollectionPolicy.C1)
    demand = demand_of({"a": mixed, "b": pool(to_open=2)}).pool
    assert (demand.quota_left, demand.groups_to_open) == ({"code": 1, "math": 2}, 2)
    demand = demand_of({"a": episodes, "b": mixed}).pool  # 5 episodes are 2 groups of 4
    assert (demand.quota_left, demand.groups_to_open) == ({"code": 0, "math": 2}, 2)
    assert demand.policy is None


def test_a_server_that_does_not_roll_holds_all_and_one_that_is_offline_is_told() -> None:
    syncing = pool(to_open=4, state=EngineState.WEIGHT_SYNCING)
    offline = pool(state=EngineState.OFFLINE)
    demand = demand_of({"a": pool(to_open=4), "b": syncing}).pool
    assert (demand.state, demand.groups_to_open) == (EngineState.WEIGHT_SYNCING, 0)
    assert demand_of({"a": syncing, "b": offline}).pool.state is EngineState.OFFLINE


def test_a_trained_server_plays_along_and_the_next_one_leads() -> None:
    trained = pool(9, state=EngineState.TRAINED)
    demand = demand_of({"a": trained, "b": pool(2, 3)})
    assert (demand.pool.step, demand.pool.groups_to_open) == (2, 3)
    assert (demand.guests, demand.steps) == ({"a"}, {"b": 2})
    assert demand_of({"a": trained, "b": pool(2, 3)}, stop_at_first=True).pool.state == "TRAINED"
    both = demand_of({"a": trained, "b": trained})
    assert (both.pool.state, both.pool.plan_steps) == (EngineState.TRAINED, [(18, 4), (8, 4)])


def test_where_needs_cannot_meet_one_server_is_served_alone_but_not_while_somebody_plays() -> None:
    a = pool(1, wanted=wants(("t1", 1)), episodes_open=0)
    b = pool(5, wanted=wants(("t2", 1)), episodes_open=0)
    demand = demand_of({"a": a, "b": b})
    assert (seats(demand.pool), demand.guests, demand.steps) == ([("t1", 1)], {"b"}, {"a": 1})
    playing = b.model_copy(update={"episodes_open": 1})
    assert seats(demand_of({"a": a, "b": playing}).pool) == []
    # One that needs nothing is about to begin its next step.
    full = pool(5, episodes_open=0)
    assert demand_of({"a": a, "b": full}).guests == frozenset()


def test_a_task_of_an_earlier_step_of_the_lead_is_still_found_also_by_a_restarted_client() -> None:
    tasks = [Task(f"t{i}", {}) for i in range(20_000)]
    (task, _) = GroupPlanner(tasks, "default", 7).new_groups(demand_of({"a": pool(10, 2)}).pool)
    wanted = wants((task.task_id, 2))
    later = demand_of({"a": pool(40, 1), "b": pool(3, wanted=wanted)}).pool
    assert GroupPlanner(tasks, "default", 7).plan(later)[:2] == [task, task]
    # The lead was trained at step 12; the other server leads now, at its own step 30.
    trained = pool(12, state=EngineState.TRAINED)
    last = demand_of({"a": trained, "b": pool(30, wanted=wanted)}).pool
    assert last.plan_steps == [(42, 4), (11, 4)]
    assert GroupPlanner(tasks, "default", 7).plan(last) == [task, task]


def test_a_task_of_somebody_else_is_left_alone() -> None:
    tasks = [Task(f"t{i}", {}) for i in range(20_000)]
    planner = GroupPlanner(tasks, "default", 7)
    assert planner.plan(demand_of({"a": pool(10, wanted=wants(("x", 2)))}).pool) == []


def test_an_outage_lets_one_episode_look_now_and_then_and_ends_with_the_answer() -> None:
    outage, down = Outage(100.0), {"judge": "503"}
    assert outage.holds({}, 0.0) == ""
    begun = [now for now in range(1, 60) if not outage.holds(down, float(now))]
    assert begun == [2, 4, 8, 16, 32]
    assert outage.holds({}, 60.0) == ""
    assert "503" in outage.holds(down, 61.0)


# --- never stuck -----------------------------------------------------------------------------------------------


class Ledger:
    """A server's pool in a few lines: groups of N seats, a step of B complete groups, lost members asked for again."""

    def __init__(self, tasks: int, repeat: int, steps: int) -> None:
        self.tasks, self.repeat, self.steps, self.step = tasks, repeat, steps, 0
        self.groups: list[dict[str, Any]] = []

    def snapshot(self) -> PoolSnapshot:
        missing = [(g["task"], self.repeat - g["done"]) for g in self.groups]
        trained = self.step == self.steps
        return pool(
            self.step,
            0 if trained else self.tasks - len(self.groups),
            wanted=[] if trained else wants(*((t, n) for t, n in missing if n)),
            repeat=self.repeat,
            tasks_target=self.tasks,
            episodes_open=0,
            state=EngineState.TRAINED if trained else EngineState.ROLLING,
            task_ids=[f"default/{g['task']}" for g in self.groups],
        )

    def would_grant(self, task: str) -> bool:
        unfilled = any(g["task"] == task and g["done"] < self.repeat for g in self.groups)
        return unfilled or len(self.groups) < self.tasks

    def finish(self, task: str) -> None:
        free = [g for g in self.groups if g["task"] == task and g["done"] < self.repeat]
        if not free:
            self.groups.append({"task": task, "done": 0})
            free = self.groups[-1:]
        free[0]["done"] += 1
        if len(self.groups) == self.tasks and all(g["done"] == self.repeat for g in self.groups):
            self.groups, self.step = [], self.step + 1


def play(
    servers: Mapping[str, Ledger],
    rng: random.Random,
    make: Callable[[], GroupPlanner],
    restarts: float,
) -> int:
    """Plan, lose some, finish the rest on every server that trains them; returns rounds until all are trained."""
    planner = make()
    for played in range(2000):
        planner = make() if rng.random() < restarts else planner
        pools = {s: one.snapshot() for s, one in servers.items()}
        demand = demand_of(pools)
        if demand.pool.state is EngineState.TRAINED:
            return played
        plan = planner.plan(demand.pool)
        assert plan, {s: (p.wanted, p.groups_to_open) for s, p in pools.items()}
        for task in plan:
            members = [servers[s] for s in demand.steps]
            current = all(servers[s].step == step for s, step in demand.steps.items())
            if current and rng.random() > 0.2 and all(m.would_grant(task.task_id) for m in members):
                for member in members:
                    member.finish(task.task_id)
    raise AssertionError("still not trained")


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=3
    ),
    seed=st.integers(0, 10_000),
    restarts=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_servers_of_any_batch_and_pace_all_come_to_their_end(
    sizes: list[tuple[int, int, int]], seed: int, restarts: float
) -> None:
    servers = {f"s{i}": Ledger(*size) for i, size in enumerate(sizes)}
    tasks = [Task(f"t{i}", {}) for i in range(30_000)]
    play(servers, random.Random(seed), lambda: GroupPlanner(tasks, "default", seed), restarts)
    assert {one.step == one.steps for one in servers.values()} == {True}
