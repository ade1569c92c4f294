"""Which tasks a group of servers plays next: as ``planning``, but a slower server may still want tasks of earlier steps of the lead."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from swarm.client.group_demand import GroupPool
from swarm.client.planning import Planner, slot_indices
from swarm.client.tasks import Task
from swarm.protocol.pool import PoolSnapshot

LOOK_BACK = 64
"""Steps that are searched for a task which this process did not plan (it was restarted)."""
SPARE_SLOTS = 16
"""Slots of an earlier step that are searched beyond its number of groups."""
KNOWN_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class GroupPlanner(Planner):
    """The choice of tasks for one run of a group. Its pools are ``GroupPool``s."""

    known: OrderedDict[str, Task | None] = field(
        default_factory=OrderedDict[str, "Task | None"], compare=False, repr=False
    )
    """Tasks that were planned or searched before, by id; bounded. None = not one of ours."""

    def plan(self, pool: PoolSnapshot, repeat: int | None = None) -> list[Task]:
        """As ``Planner.plan``."""
        plan = Planner.plan(self, pool, repeat)
        for task in plan:
            self._remember(task.task_id, task)
        return plan

    def _slots(self, pool: PoolSnapshot) -> Iterator[int]:
        assert isinstance(pool, GroupPool)
        step, groups = pool.plan_steps[0]
        return slot_indices(self.data_seed, step, groups, len(self.tasks))

    def _find(self, task_id: str, pool: PoolSnapshot) -> Task | None:
        if task_id not in self.known:
            found = Planner._find(self, task_id, pool) or self._search_back(task_id, pool)
            self._remember(task_id, found)
        return self.known[task_id]

    def _search_back(self, task_id: str, pool: PoolSnapshot) -> Task | None:
        """Go through the steps before now, and through those before each change of the lead."""
        assert isinstance(pool, GroupPool)
        for newest, groups in pool.plan_steps:
            for step in range(newest, max(-1, newest - LOOK_BACK), -1):
                slots = slot_indices(self.data_seed, step, groups, len(self.tasks))
                for index in islice(slots, groups + SPARE_SLOTS):
                    if (task := self.tasks[index]).task_id == task_id:
                        return task
        return None

    def _remember(self, task_id: str, task: Task | None) -> None:
        self.known[task_id] = task
        self.known.move_to_end(task_id)
        while len(self.known) > KNOWN_LIMIT:
            self.known.popitem(last=False)
