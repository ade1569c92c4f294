"""A lot: what one task set must and may give to a step, and where it stands. Without a mix one lot holds everything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Lot:
    """Counts of one task set's groups in the open step; ``need`` and ``limit`` are groups, under C1 episodes."""

    need: int
    """What the step consumes of it."""
    limit: int
    """What may be in the step at once, oversampling included."""
    tries: int
    """Groups opened at most, lost and untrainable ones included (C1: not used)."""
    groups: int = 0
    """Opened so far, dropped ones included."""
    dropped: int = 0
    completed: int = 0
    trainable: int = 0
    """Completed ones whose rewards differ."""
    seats: int = 0
    """Of the groups that were not dropped, less those that are not filled again."""
    open: int = 0
    """Seats with an open episode."""
    finished: int = 0
    """Seats with a finished episode."""

    @property
    def alive(self) -> int:
        """Groups that were not dropped."""
        return self.groups - self.dropped

    @property
    def missing(self) -> int:
        """Seats that wait for an episode."""
        return self.seats - self.open - self.finished

    @property
    def tries_left(self) -> int:
        """Groups that may still be opened before the step gives up on this lot."""
        return self.tries - self.groups

    @property
    def exhausted(self) -> bool:
        """Whether all tries are used and no group is still running."""
        return self.tries_left <= 0 and self.alive == self.completed

    def shrink(self, units: int) -> None:
        """Take something out of the step for good (rule ``drop``)."""
        self.need = max(0, self.need - units)
        self.limit = max(0, self.limit - units)
