"""Task readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.client import ClientUsageError, Task, as_task_set, read_jsonl
from swarm.client.tasks import ComputedTasks


def test_jsonl_names_tasks_by_their_id_or_their_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": "a", "x": 1}\n\n{"id": 7}\n{"x": 2}\n"plain"\n')
    tasks = read_jsonl(path)
    assert [t.task_id for t in tasks] == ["a", "7", "3", "4"]
    assert tasks[0].payload == {"task_id": "a", "x": 1}
    assert tasks[3].payload == {"value": "plain"}


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"x": 1}\n{oops\n')
    with pytest.raises(ClientUsageError, match="Line 2"):
        read_jsonl(path)


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
