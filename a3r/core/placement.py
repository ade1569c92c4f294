"""What an attempt needs of a host and what a host offers; whether the one fits into the other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Need:
    """Of one attempt."""

    slots: int = 1
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker has free right now, measured by itself just before it asks."""

    slots: int | None = None
    """None = it does not count."""
    gpus: tuple[int, ...] = ()
    """Indices of GPUs that were measured free."""
    co_tenants: tuple[Mapping[str, Any], ...] = field(default=())
    """Foreign processes on its GPUs: recorded with the run, because contention changes what is measured."""

    def fits(self, need: Need) -> bool:
        """Whether the attempt can run there now."""
        return (self.slots is None or need.slots <= self.slots) and need.gpus <= len(self.gpus)

    def without(self, gpus: set[int]) -> Offer:
        """The offer less GPUs that are leased, whatever was measured."""
        return Offer(self.slots, tuple(g for g in self.gpus if g not in gpus), self.co_tenants)


def could_ever_fit(need: Need, slots: int, inventory: Mapping[str, Any]) -> bool:
    """Whether the attempt fits into the worker when nothing else runs there, as its inventory says."""
    return need.slots <= slots and need.gpus <= len(inventory.get("gpus") or ())
