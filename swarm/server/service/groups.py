"""The pool of one step: groups of episodes of the same task, filled seat by seat.

Knows seats, rewards and the rule for lost members; what makes a step complete is ``policies``' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from swarm.protocol.config import BatchConfig
from swarm.protocol.messages import WantedTask
from swarm.protocol.states import GroupRule
from swarm.server.service.episodes import Episode


@dataclass(slots=True, eq=False)
class Group:
    """Episodes of one task under one policy version, at most ``size``; a seat is a repeat index 0..size-1."""

    group_id: str
    task_set: str
    task_id: str
    size: int
    open: dict[int, Episode] = field(default_factory=dict[int, Episode])
    finished: dict[int, Episode] = field(default_factory=dict[int, Episode])
    forgone: int = 0
    """Seats that are not filled again (rule ``partial``)."""
    dropped: bool = False

    @property
    def missing(self) -> int:
        """Seats that wait for an episode."""
        if self.dropped:
            return 0
        return self.size - self.forgone - len(self.open) - len(self.finished)

    @property
    def complete(self) -> bool:
        """Whether every seat that will be filled holds a finished episode."""
        return not self.dropped and len(self.finished) == self.size - self.forgone

    @property
    def rewards(self) -> list[float]:
        """Rewards of the finished members, by repeat index."""
        return [self.finished[i].reward or 0.0 for i in sorted(self.finished)]

    @property
    def unequal(self) -> bool:
        """Whether the rewards differ, so that advantages are not all zero."""
        rewards = self.rewards
        return bool(rewards) and min(rewards) != max(rewards)

    def free_seat(self) -> int:
        """Return the smallest repeat index that nobody has."""
        return next(i for i in range(self.size) if i not in self.open and i not in self.finished)


@dataclass(slots=True)
class Loss:
    """What a lost member did to its group: the members that are out with it, and why."""

    outcast: list[Episode] = field(default_factory=list[Episode])
    dropped: bool = False


class Pool:
    """All groups of the open step, in order of opening; ``completed`` in order of completion."""

    def __init__(self, step: int, batch: BatchConfig) -> None:
        self.step = step
        self.batch = batch
        self.groups: dict[str, Group] = {}
        self.completed: list[Group] = []
        self.not_replaced = 0
        """Groups dropped for good (rule ``drop``): the step's target shrinks by these."""
        self.finish_order: list[Episode] = []
        self.trainable = 0
        """Complete groups whose rewards differ."""
        self.open_seats = 0
        """Seats of groups that were not dropped that hold an open episode."""
        self.dropped = 0
        self._unfilled: dict[tuple[str, str], list[Group]] = {}

    @property
    def target(self) -> int:
        """Groups that this step consumes: B less those dropped for good."""
        return max(0, self.batch.tasks - self.not_replaced)

    def alive(self) -> Iterator[Group]:
        """Yield the groups that were not dropped."""
        return (g for g in self.groups.values() if not g.dropped)

    def unfilled(self, task_set: str, task_id: str) -> Group | None:
        """Return the oldest group of that task that has a free seat."""
        for group in self._unfilled.get((task_set, task_id), ()):
            if group.missing > 0:
                return group
        return None

    def open_group(self, task_set: str, task_id: str) -> Group:
        """Open a new group; its id is the first unused number of the step."""
        index = len(self.groups)
        while (group_id := f"s{self.step}.g{index}") in self.groups:
            index -= 1  # a resumed pool has gaps
        return self.restore_group(group_id, task_set, task_id)

    def restore_group(self, group_id: str, task_set: str, task_id: str) -> Group:
        """Return the group of that id, made if new."""
        group = self.groups.get(group_id)
        if group is None:
            group = Group(group_id, task_set, task_id, self.batch.repeat)
            self.groups[group_id] = group
            self._unfilled.setdefault((task_set, task_id), []).append(group)
        return group

    def restore_drop(self, group: Group) -> None:
        """Mark a group that was dropped before this process began."""
        group.dropped = True
        self.dropped += 1
        self.not_replaced += self.batch.group_rule is GroupRule.DROP

    def seat(self, group: Group, episode: Episode) -> None:
        """Put a granted episode on its seat."""
        group.open[episode.repeat_index] = episode
        self.open_seats += 1

    def finish(self, episode: Episode) -> bool:
        """Take a finished member in; False when its group was dropped meanwhile."""
        group = self._vacate(episode)
        if group.dropped:
            return False
        group.finished[episode.repeat_index] = episode
        self.finish_order.append(episode)
        self._note_completion(group)
        return True

    def release(self, episode: Episode) -> None:
        """Free the seat of an episode whose loss is nobody's fault (a server restart): it is wanted again."""
        self._vacate(episode)

    def lose(self, episode: Episode) -> Loss:
        """Apply the group rule to a member that was aborted or expired; returns who is out with it."""
        group = self._vacate(episode)
        rule = self.batch.group_rule
        if group.dropped or rule is GroupRule.WAIT:
            return Loss()
        if rule is GroupRule.PARTIAL:
            group.forgone += 1
            if group.size - group.forgone >= 2:
                self._note_completion(group)
                return Loss()
        if rule is GroupRule.DROP:
            self.not_replaced += 1
        return self._drop(group)

    def wanted(self) -> list[WantedTask]:
        """Return the tasks with missing members, oldest group first."""
        return [
            WantedTask(task_set=g.task_set, task_id=g.task_id, missing=g.missing)
            for g in self.alive()
            if g.missing > 0
        ]

    def _vacate(self, episode: Episode) -> Group:
        group = self.groups[episode.group_id]
        if group.open.pop(episode.repeat_index, None) is not None:
            self.open_seats -= 1
        return group

    def _drop(self, group: Group) -> Loss:
        group.dropped = True
        self.dropped += 1
        self.open_seats -= len(group.open)
        outcast = [*group.open.values(), *group.finished.values()]
        group.open.clear()
        gone = set(map(id, outcast))
        self.finish_order = [e for e in self.finish_order if id(e) not in gone]
        return Loss(outcast, dropped=True)

    def _note_completion(self, group: Group) -> None:
        if group.complete:
            self.completed.append(group)
            self.trainable += group.unequal
            self._unfilled[group.task_set, group.task_id].remove(group)
