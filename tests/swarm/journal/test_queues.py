"""Shared task queues and the groups of a step survive the file being opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import EpisodeDetails, QueuePlace, QueueRecord


def queue(name: str = "math", **more: Any) -> QueueRecord:
    return QueueRecord(**{"name": name, "task_ids": ["a", "b"], "seed": 3, "epochs": None, **more})


def fail_after(journal: Journal, *writes: Callable[[], None]) -> None:
    """Do all ``writes`` as one whole that is then undone."""
    with journal.together():
        for write in writes:
            write()
        raise ZeroDivisionError


def test_a_queue_comes_back_with_its_place(journal: Journal, path: Path) -> None:
    place = QueuePlace(handed_out=7, again=("b",), returns={"b": 1})
    journal.record_queue(queue())
    journal.record_queue(queue("code", epochs=2, place=place))
    moved = QueuePlace(handed_out=1)
    journal.move_queue("math", moved)
    journal.close()
    again = Journal.open(path)
    assert again.queues() == [queue("code", epochs=2, place=place), queue(place=moved)]
    again.close()


def test_a_queue_of_the_same_name_is_replaced(journal: Journal) -> None:
    journal.record_queue(queue(place=QueuePlace(handed_out=5)))
    journal.record_queue(queue(task_ids=["x"]))
    assert journal.queues() == [queue(task_ids=["x"])]


def test_queues_belong_to_a_run(journal: Journal) -> None:
    journal.record_queue(queue())
    journal.set_config(TrainConfig(engine="toy"), "another")
    assert journal.queues() == []


def test_a_move_that_is_undone_with_its_grant_leaves_the_queue_where_it_was(
    journal: Journal,
) -> None:
    journal.record_queue(queue())
    with pytest.raises(ZeroDivisionError):
        fail_after(journal, lambda: journal.move_queue("math", QueuePlace(handed_out=9)))
    assert journal.queues() == [queue()]


def test_each_group_of_a_step_is_found_once_with_its_first_member(
    journal: Journal, build: Any
) -> None:
    for number, (group, seat) in enumerate([("s4.g1", 0), ("s4.g0", 0), ("s4.g1", 1)]):
        episode = build.episode(f"e{number}", step=4)
        episode.group_id, episode.repeat_index = group, seat
        journal.record_grant(episode)
    journal.record_grant(build.episode("later", step=5))
    found = {r.group_id: (r.episode_id, r.repeat_index) for r in journal.first_of_groups(4)}
    assert found == {"s4.g1": ("e0", 0), "s4.g0": ("e1", 0)}


def test_a_batch_and_the_tasks_that_it_left_over_are_recorded_whole_or_not_at_all(
    journal: Journal, build: Any
) -> None:
    journal.record_queue(queue())
    with pytest.raises(ZeroDivisionError):
        fail_after(
            journal,
            lambda: journal.commit_batch(build.batch(1), episode_ids=[], groups=[]),
            lambda: journal.move_queue("math", QueuePlace(handed_out=9)),
        )
    assert (journal.committed_after(0), journal.queues()) == ([], [queue()])
    with journal.together():
        journal.commit_batch(build.batch(1), episode_ids=[], groups=[])
        journal.move_queue("math", QueuePlace(handed_out=9))
    assert [one.batch.step for one in journal.committed_after(0)] == [1]
    assert journal.queues()[0].place.handed_out == 9


def test_a_group_is_known_by_its_first_member_and_not_by_an_unused_reservation(
    journal: Journal, build: Any
) -> None:
    kinds = {"unused": EpisodeDetails(unused=True), "member": EpisodeDetails()}
    kinds["queued"] = EpisodeDetails(unused=True, shared=True)
    for name, details in kinds.items():
        episode = build.episode(name, step=4)
        episode.group_id = "s4.g1" if name == "queued" else "s4.g0"
        episode.details = details
        journal.record_grant(episode)
    found = {r.group_id: r.episode_id for r in journal.first_of_groups(4)}
    assert found == {"s4.g0": "member", "s4.g1": "queued"}
