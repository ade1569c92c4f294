"""Which rollout replica serves a call: the one that its episode used before, else the least busy. Pure bookkeeping."""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 65_536
"""Episodes whose replica is remembered; beyond that the ones longest unheard of are forgotten, which costs a prefix cache only."""


class Balance:
    """Counts open calls a replica; episodes stick to theirs while it lives."""

    def __init__(self, replicas: int) -> None:
        self._open = dict.fromkeys(range(replicas), 0)
        self._home: OrderedDict[str, int] = OrderedDict()

    @property
    def living(self) -> list[int]:
        """Replicas that take calls."""
        return list(self._open)

    def take(self, affinity: str) -> int:
        """Count one more open call and return its replica; ties go to the lowest number.

        Raises:
            LookupError: no replica lives.
        """
        if not self._open:
            raise LookupError("no rollout replica lives")
        home = self._home.get(affinity)
        if home not in self._open:
            home = min(self._open, key=lambda replica: (self._open[replica], replica))
        self._home[affinity] = home
        self._home.move_to_end(affinity)
        if len(self._home) > REMEMBERED:
            self._home.popitem(last=False)
        self._open[home] += 1
        return home

    def give(self, replica: int) -> None:
        """End a call; one of a replica that was lost meanwhile is not counted any more."""
        if self._open.get(replica, 0):
            self._open[replica] -= 1

    def lose(self, replica: int) -> None:
        """The replica is dead: its episodes go elsewhere with their next call."""
        self._open.pop(replica, None)

    def gain(self, replica: int) -> None:
        """The replica (again) takes calls."""
        self._open.setdefault(replica, 0)
