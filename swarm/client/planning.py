"""Which episodes to run next: pure functions of the pool, the data seed, the server step and the slot.

A slot is a place among the groups of one step. The slots of a step name a fixed sequence of tasks; those that the pool
already has are skipped. So a client that was killed and started again goes on where the pool is, with no state of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from swarm.client.tasks import Task, TaskSet
from swarm.protocol.ordering import in_epochs, keyed_hash
from swarm.protocol.pool import PoolSnapshot
from swarm.protocol.states import CollectionPolicy

SMALL_SET = 10_000
"""Up to this many tasks an id that no slot names is looked up by going through the set."""


def pick_index(data_seed: int, step: int, slot: int, groups_per_step: int, size: int) -> int:
    """Index of the task of ``slot`` in ``step``.

    The first ``groups_per_step`` slots of all steps together walk through the set in one random order an epoch, so every
    task is seen once before any is seen twice. Further slots (replacements of groups that did not count) are drawn freely.
    """
    if slot >= groups_per_step:
        return keyed_hash(data_seed, "extra", step, slot) % size
    return in_epochs(step * groups_per_step + slot, size, data_seed)


def slot_indices(data_seed: int, step: int, groups_per_step: int, size: int) -> Iterator[int]:
    """Task indices of slots 0, 1, 2, ... of ``step``, without end."""
    slot = 0
    while True:
        yield pick_index(data_seed, step, slot, groups_per_step, size)
        slot += 1


def groups_to_open(pool: PoolSnapshot, task_set: str) -> int:
    """New groups of ``task_set`` that the server would open now: all that it needs, under a mix what is left of the set's quota."""
    if not pool.quota_left:
        return pool.groups_to_open
    left = pool.quota_left.get(task_set, 0)
    if pool.policy is CollectionPolicy.C1:  # its quotas count episodes
        left = -(-left // pool.repeat)
    return min(left, pool.groups_to_open)


@dataclass(frozen=True, slots=True)
class Planner:
    """The choice of tasks for one run."""

    tasks: TaskSet
    task_set: str
    data_seed: int

    def key(self, task: Task) -> str:
        """How the pool names a task."""
        return f"{self.task_set}/{task.task_id}"

    def plan(self, pool: PoolSnapshot, repeat: int | None = None) -> list[Task]:
        """Tasks of the episodes to ask for now, in order, one entry an episode.

        Groups with missing members come first (at most what is missing), then new groups with ``repeat`` members each
        (default: the server's N). Wanted tasks of other task sets are another client's and are left out.
        """
        plan = [
            task
            for wanted in pool.wanted
            if wanted.task_set == self.task_set
            and (task := self._find(wanted.task_id, pool)) is not None
            for _ in range(wanted.missing)
        ]
        for task in self.new_groups(pool):
            plan.extend([task] * (repeat or pool.repeat))
        return plan

    def new_groups(self, pool: PoolSnapshot) -> list[Task]:
        """As many tasks that the pool does not have as it would open groups for; fewer only when the set has no other."""
        need, size = groups_to_open(pool, self.task_set), len(self.tasks)
        chosen: dict[int, Task] = {}
        taken = set(pool.task_ids)
        for tried, index in enumerate(self._slots(pool)):
            if len(chosen) >= need or tried > 8 * (len(taken) + need) + 64:
                break
            if index not in chosen and self.key(task := self.tasks[index]) not in taken:
                chosen[index] = task
        if len(chosen) < need:
            self._fill(chosen, taken, need, size)
        if not chosen and need:
            # Every task of the set is in the pool already: repeat tasks, or a small set could never fill a step.
            return self._repeats(pool, need)
        return list(chosen.values())

    def _fill(self, chosen: dict[int, Task], taken: Collection[str], need: int, size: int) -> None:
        """Add tasks that the free draws did not meet, in order of index; only a nearly used-up small set gets here."""
        for index in range(min(size, SMALL_SET)):
            if len(chosen) >= need:
                return
            if index not in chosen and self.key(task := self.tasks[index]) not in taken:
                chosen[index] = task

    def _repeats(self, pool: PoolSnapshot, need: int) -> list[Task]:
        size, first = len(self.tasks), len(pool.task_ids)
        count = min(need, size)
        return [self.tasks[(pool.step + first + i) % size] for i in range(count)]

    def _slots(self, pool: PoolSnapshot) -> Iterator[int]:
        return slot_indices(self.data_seed, pool.step, pool.tasks_target, len(self.tasks))

    def _find(self, task_id: str, pool: PoolSnapshot) -> Task | None:
        """The task that the pool calls ``task_id``: a slot of this step names it, or a small set is searched."""
        for tried, index in enumerate(self._slots(pool)):
            if tried > 8 * len(pool.task_ids) + 64:
                break
            if (task := self.tasks[index]).task_id == task_id:
                return task
        return _search(self.tasks, task_id)


def _search(tasks: TaskSet, task_id: str) -> Task | None:
    size = len(tasks)
    if size > SMALL_SET:
        return None
    return next((tasks[i] for i in range(size) if tasks[i].task_id == task_id), None)
