"""The pool of one step: groups of episodes of the same task, filled seat by seat.

Knows seats, rewards and the rule for lost members; what makes a step complete is ``policies``' business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from swarm.protocol.config import BatchConfig
from swarm.protocol.pool import WantedTask
from swarm.protocol.states import CollectionPolicy, GroupRule
from swarm.server.service.episodes import Episode
from swarm.server.service.lots import Lot
from swarm.server.service.quotas import carried, lots_of, shares_at
from swarm.server.service.returns import trainable


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
    shared: bool = False
    """Its task came from a shared queue: any client of the task set may fill its seats."""
    code_hash: str = ""
    """Version of the code that its members play with; another version never joins."""
    fresh: bool = False
    """Opened by this process, and nothing but unused reservations has left its seats."""
    _judged: tuple[int, bool] = (0, False)
    """How many members were finished when ``unequal`` was last found, and what it was."""

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
        """Rewards of the finished members, by repeat index; those that only told rewards of agents are not in it."""
        told = [self.finished[i].reward for i in sorted(self.finished)]
        return [reward for reward in told if reward is not None]

    @property
    def unequal(self) -> bool:
        """Whether some agent's rewards differ, so that advantages are not all zero (or a client chose its own)."""
        count = len(self.finished)
        if self._judged[0] != count:
            self._judged = (count, trainable([self.finished[i] for i in sorted(self.finished)]))
        return self._judged[1]

    def judge_anew(self) -> None:
        """Forget whether the rewards differ: as many members are not the same members."""
        self._judged = (0, False)

    def free_seat(self) -> int:
        """Return the smallest repeat index that nobody has."""
        return next(i for i in range(self.size) if i not in self.open and i not in self.finished)


@dataclass(slots=True)
class Loss:
    """What a lost member did to its group: the members that are out with it, and why."""

    outcast: list[Episode] = field(default_factory=list[Episode])
    dropped: bool = False
    forgone: bool = False
    """Its seat is not filled again (rule ``partial``)."""


def nobody_agreed() -> bool:
    """Consent of a pool that nobody gave it to."""
    return False


class Pool:
    """All groups of the open step, in order of opening; ``completed`` in order of completion."""

    def __init__(
        self, step: int, batch: BatchConfig, owed: Mapping[str, float] | None = None
    ) -> None:
        """An empty pool; ``owed`` is what earlier steps left open of the mix (``quotas``)."""
        self.step = step
        self.batch = batch
        self.shares = shares_at(batch.mix, step)
        """Of each task set; empty without a mix."""
        self.owed = carried(self.shares, owed or {})
        self.lots: dict[str, Lot] = lots_of(batch, step, self.owed)
        self.consent: Callable[[], bool] = nobody_agreed
        """Whether the trainers agreed to take the step (C4 and C5)."""
        self.groups: dict[str, Group] = {}
        self.code_hashes: set[str] = set()
        """Of all groups that were opened."""
        self.completed: list[Group] = []
        self.not_replaced = 0
        """Groups dropped for good (rule ``drop``): the step's target shrinks by these."""
        self.finish_order: list[Episode] = []
        self._unfilled: dict[tuple[str, str], list[Group]] = {}

    @property
    def target(self) -> int:
        """Groups that this step consumes: B less those dropped for good."""
        return max(0, self.batch.tasks - self.not_replaced)

    @property
    def trainable(self) -> int:
        """Complete groups whose rewards differ."""
        return sum(lot.trainable for lot in self.lots.values())

    @property
    def open_seats(self) -> int:
        """Seats of groups that were not dropped that hold an open episode."""
        return sum(lot.open for lot in self.lots.values())

    @property
    def dropped(self) -> int:
        """Groups that were dropped."""
        return sum(lot.dropped for lot in self.lots.values())

    def lot(self, task_set: str) -> Lot:
        """Return the lot that groups of ``task_set`` count in; one that takes nothing for a set which the mix does not name."""
        return self.lots.get(task_set if self.shares else "") or Lot(0, 0, 0)

    def alive(self) -> Iterator[Group]:
        """Yield the groups that were not dropped."""
        return (g for g in self.groups.values() if not g.dropped)

    def unfilled(self, task_set: str, task_id: str, code_hash: str = "") -> Group | None:
        """Return the oldest group of that task and version of the code that has a free seat."""
        for group in self._unfilled.get((task_set, task_id), ()):
            if group.missing > 0 and group.code_hash == code_hash:
                return group
        return None

    def open_group(self, task_set: str, task_id: str, code_hash: str = "") -> Group:
        """Open a new group; its id is the first unused number of the step."""
        index = len(self.groups)
        while (group_id := f"s{self.step}.g{index}") in self.groups:
            index -= 1  # a resumed pool has gaps
        group = self.restore_group(group_id, task_set, task_id, code_hash)
        group.fresh = True
        return group

    def restore_group(
        self,
        group_id: str,
        task_set: str,
        task_id: str,
        code_hash: str = "",
        size: int | None = None,
    ) -> Group:
        """Return the group of that id, made if new; ``size`` is None for that of the batch configuration."""
        group = self.groups.get(group_id)
        if group is None:
            size = size or self.batch.repeat
            group = Group(group_id, task_set, task_id, size, code_hash=code_hash)
            self.code_hashes.add(code_hash)
            self.groups[group_id] = group
            lot = self.lots.setdefault(task_set if self.shares else "", Lot(0, 0, 0))
            lot.groups += 1
            lot.seats += group.size
            self._unfilled.setdefault((task_set, task_id), []).append(group)
        return group

    def take_over(self, old: Pool) -> None:
        """Take in the groups of ``old``, a pool of the same step under another batch configuration, without episodes that play.

        Finished members without a seat in the new group size stay out; the caller has dropped them.
        """
        for group in old.groups.values():
            mine = self.restore_group(
                group.group_id, group.task_set, group.task_id, group.code_hash
            )
            mine.shared = group.shared
            if group.dropped:
                self.restore_drop(mine)
            elif self.batch.group_rule is GroupRule.PARTIAL:
                for _ in range(mine.size - (group.size - group.forgone)):
                    self._forgo(mine)
            for episode in group.open.values():  # prepared ones: a commit may come
                if episode.repeat_index < mine.size:
                    self.seat(mine, episode)
        for episode in old.finish_order:
            if episode.repeat_index < self.batch.repeat:
                self.finish(episode)

    def restore_drop(self, group: Group) -> None:
        """Mark a group that was dropped before this process began."""
        if self.batch.group_rule is GroupRule.DROP:
            self._shrink(group)
        self._drop(group)

    def restore_forgone(self, group: Group) -> None:
        """Give a seat up that was given up before this process began."""
        self._forgo(group)

    def forget(self, group: Group) -> None:
        """Undo the opening of a group that nobody took a seat of: its grant could not be recorded."""
        assert not group.open
        assert not group.finished
        del self.groups[group.group_id]
        self._unfilled[group.task_set, group.task_id].remove(group)
        lot = self.lot(group.task_set)
        lot.groups -= 1
        lot.seats -= group.size

    def seat(self, group: Group, episode: Episode) -> None:
        """Put a granted episode on its seat."""
        group.open[episode.repeat_index] = episode
        self.lot(group.task_set).open += 1

    def finish(self, episode: Episode) -> bool:
        """Take a finished member in; False when its group was dropped meanwhile."""
        group = self._vacate(episode)
        if group.dropped:
            return False
        group.finished[episode.repeat_index] = episode
        self.lot(group.task_set).finished += 1
        self.finish_order.append(episode)
        self._note_completion(group)
        return True

    def release(self, episode: Episode) -> None:
        """Free the seat of an episode whose loss is nobody's fault (a server restart): it is wanted again, unless it was only reserved."""
        if episode.reserved:
            self.unreserve(episode)
        else:
            self._vacate(episode)

    def withdraw(self, episode: Episode) -> None:
        """Take a finished member out again: its seat waits for another one."""
        group = self.groups[episode.group_id]
        lot = self.lot(group.task_set)
        if group in self.completed:
            self.completed.remove(group)
            lot.completed -= 1
            lot.trainable -= group.unequal
            self._unfilled[group.task_set, group.task_id].append(group)
        del group.finished[episode.repeat_index]
        group.judge_anew()
        lot.finished -= 1
        self.finish_order.remove(episode)

    def unreserve(self, episode: Episode) -> None:
        """Free the seat of a reservation that nobody used, and undo the group that only such opened: it wants no members."""
        fresh = self.groups[episode.group_id].fresh
        group = self._vacate(episode)
        group.fresh = fresh
        if fresh and not (group.open or group.dropped or group.shared):
            self.forget(group)

    def lose(self, episode: Episode) -> Loss:
        """Apply the group rule to a member that was aborted or expired; returns who is out with it."""
        group = self._vacate(episode)
        rule = self.batch.group_rule
        if group.dropped or rule is GroupRule.WAIT:
            return Loss()
        if rule is GroupRule.PARTIAL:
            self._forgo(group)
            if group.size - group.forgone >= 2:
                self._note_completion(group)
                return Loss(forgone=True)
        if rule is GroupRule.DROP:
            self._shrink(group)
        return self._drop(group)

    def discard(self, group: Group) -> Loss:
        """Drop a group whatever the rule is, and without using up a try; returns who is out with it."""
        self.lot(group.task_set).tries += 1
        return self._drop(group)

    def wanted(self) -> list[WantedTask]:
        """Return the tasks with missing members, oldest group first."""
        return [
            WantedTask(
                task_set=g.task_set, task_id=g.task_id, missing=g.missing, code_hash=g.code_hash
            )
            for g in self.alive()
            if g.missing > 0
        ]

    def missing_of(self, task_set: str) -> int:
        """Return how many seats of that task set's groups wait for an episode."""
        if self.shares:
            return self.lot(task_set).missing
        return sum(g.missing for g in self.alive() if g.task_set == task_set)

    def unfilled_shared(self, task_set: str, code_hash: str = "") -> Group | None:
        """Return the oldest group with a free seat whose task the shared queue of ``task_set`` gave to that version of the code."""
        if self.lot(task_set).missing <= 0:
            return None
        mine = (
            g
            for g in self.groups.values()
            if g.shared and g.task_set == task_set and g.code_hash == code_hash
        )
        return next((g for g in mine if g.missing > 0), None)

    def _vacate(self, episode: Episode) -> Group:
        group = self.groups[episode.group_id]
        group.fresh = False
        if group.open.get(episode.repeat_index) is episode:
            del group.open[episode.repeat_index]
            self.lot(group.task_set).open -= 1
        return group

    def _forgo(self, group: Group) -> None:
        group.forgone += 1
        self.lot(group.task_set).seats -= 1

    def _shrink(self, group: Group) -> None:
        self.not_replaced += 1
        episodes = self.batch.policy is CollectionPolicy.C1
        self.lot(group.task_set).shrink(self.batch.repeat if episodes else 1)

    def _drop(self, group: Group) -> Loss:
        group.dropped = True
        self._count_out(group)
        outcast = [*group.open.values(), *group.finished.values()]
        group.open.clear()
        gone = set(map(id, outcast))
        self.finish_order = [e for e in self.finish_order if id(e) not in gone]
        return Loss(outcast, dropped=True)

    def _count_out(self, group: Group) -> None:
        lot = self.lot(group.task_set)
        lot.dropped += 1
        lot.seats -= group.size - group.forgone
        lot.open -= len(group.open)
        lot.finished -= len(group.finished)
        if group in self.completed:
            self.completed.remove(group)
            lot.completed -= 1
            lot.trainable -= group.unequal

    def _note_completion(self, group: Group) -> None:
        if group.complete:
            self.completed.append(group)
            lot = self.lot(group.task_set)
            lot.completed += 1
            lot.trainable += group.unequal
            self._unfilled[group.task_set, group.task_id].remove(group)
