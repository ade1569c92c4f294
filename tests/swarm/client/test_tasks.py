"""Task sets."""

from __future__ import annotations

import pytest

from swarm.client import ClientUsageError, Task, as_task_set
from swarm.client.tasks import ComputedTasks


def test_generators_sequences_and_functions_become_task_sets() -> None:
    assert as_task_set({"n": i} for i in range(3))[2] == Task("2", {"n": 2})
    assert len(as_task_set((i for i in iter(int, 1)), limit=4)) == 4
    computed = ComputedTasks(lambda i: {"n": i}, 5)
    assert as_task_set(computed)[4] == Task("4", {"n": 4})
    with pytest.raises(IndexError):
        _ = computed[5]


def test_no_task_and_double_ids_are_refused() -> None:
    with pytest.raises(ClientUsageError, match="no task"):
        as_task_set([])
    with pytest.raises(ClientUsageError, match="twice"):
        as_task_set([Task("a"), Task("a")])
