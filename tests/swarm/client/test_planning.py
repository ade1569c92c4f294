"""Planning is a pure function of pool, data seed, step and slot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swarm.client.planning import Planner, pick_index
from swarm.client.tasks import ComputedTasks, Task
from swarm.protocol.ordering import permuted
from swarm.protocol.pool import PoolSnapshot, WantedTask
from swarm.protocol.states import EngineState


def numbered(size: int) -> ComputedTasks:
    return ComputedTasks(lambda i: Task(f"t{i}"), size)


def snapshot(
    step: int = 0, *, have: list[str] | None = None, open_more: int = 4, **more: object
) -> PoolSnapshot:
    values: dict[str, object] = {
        "step": step,
        "policy_version": None,
        "state": EngineState.ROLLING,
        "tasks_target": 4,
        "repeat": 2,
        "groups_complete": 0,
        "groups_open": 0,
        "groups_to_open": open_more,
        "episodes_finished": 0,
        "episodes_open": 0,
        "wanted": [],
        "task_ids": [f"set/{name}" for name in have or []],
        **more,
    }
    return PoolSnapshot.model_validate(values)


def names(tasks: list[Task]) -> list[str]:
    return [task.task_id for task in tasks]


@given(size=st.integers(1, 300), key=st.text(max_size=5))
def test_permuted_is_a_permutation(size: int, key: str) -> None:
    assert sorted(permuted(i, size, key) for i in range(size)) == list(range(size))


def test_an_epoch_sees_every_task_once_and_the_next_in_another_order() -> None:
    first = [pick_index(7, step, slot, 4, 20) for step in range(5) for slot in range(4)]
    second = [pick_index(7, step, slot, 4, 20) for step in range(5, 10) for slot in range(4)]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second


def test_the_data_seed_chooses_the_order() -> None:
    orders = {tuple(pick_index(seed, 0, slot, 8, 1000) for slot in range(8)) for seed in range(5)}
    assert len(orders) == 5


def test_a_restarted_client_goes_on_with_the_tasks_that_are_left() -> None:
    planner = Planner(numbered(1000), "set", 3)
    whole = names(planner.new_groups(snapshot(5)))
    # The groups opened in another order than planned, as concurrent grants may.
    left = names(
        Planner(numbered(1000), "set", 3).new_groups(
            snapshot(5, have=[whole[2], whole[0]], open_more=2)
        )
    )
    assert left == [whole[1], whole[3]]


def test_wanted_members_come_before_new_groups() -> None:
    planner = Planner(numbered(50), "set", 0)
    first = names(planner.new_groups(snapshot()))
    wanted = [WantedTask(task_set="set", task_id=first[1], missing=1)]
    plan = names(planner.plan(snapshot(have=first[:3], open_more=1, wanted=wanted)))
    assert plan == [first[1], first[3], first[3]]


def test_wanted_tasks_of_another_set_are_left_to_their_client() -> None:
    wanted = [WantedTask(task_set="other", task_id="t1", missing=2)]
    assert Planner(numbered(5), "set", 0).plan(snapshot(open_more=0, wanted=wanted)) == []


def test_a_wanted_task_that_no_slot_names_is_found_in_a_small_set() -> None:
    tasks = [Task(f"t{i}") for i in range(9)]
    wanted = [WantedTask(task_set="set", task_id="t8", missing=2)]
    assert names(Planner(tasks, "set", 0).plan(snapshot(open_more=0, wanted=wanted))) == [
        "t8",
        "t8",
    ]


def test_a_set_smaller_than_a_step_repeats_its_tasks() -> None:
    planner = Planner(numbered(3), "set", 0)
    assert sorted(names(planner.new_groups(snapshot()))) == ["t0", "t1", "t2"]
    again = planner.new_groups(snapshot(have=["t0", "t1", "t2"], open_more=1))
    assert len(again) == 1


@given(
    step=st.integers(0, 500),
    have=st.integers(0, 12),
    need=st.integers(0, 8),
    size=st.integers(1, 40),
)
def test_new_groups_are_distinct_and_new_while_there_are_any(
    step: int, have: int, need: int, size: int
) -> None:
    planner = Planner(numbered(size), "set", 1)
    known = [f"t{i}" for i in range(min(have, size))]
    chosen = names(planner.new_groups(snapshot(step, have=known, open_more=need)))
    fresh = size - len(known)
    assert len(set(chosen)) == len(chosen)
    if fresh > 0:
        assert len(chosen) == min(need, fresh)
        assert not set(chosen) & set(known)


def test_under_a_mix_a_set_plans_what_is_left_of_its_quota() -> None:
    planner = Planner(numbered(100), "set", 0)
    mixed = snapshot(open_more=4, quota_left={"set": 1, "other": 3})
    assert len(planner.new_groups(mixed)) == 1
    assert planner.new_groups(snapshot(open_more=4, quota_left={"other": 4})) == []
    episodes = snapshot(open_more=4, quota_left={"set": 3, "other": 5}, policy="C1")
    assert len(planner.new_groups(episodes)) == 2  # groups of two for three episodes
