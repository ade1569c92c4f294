"""Which GPUs this host may offer: measured free just now, whatever any table says."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from a3r.core.errors import HostError
from a3r.core.ports import GpuProbe, GpuReading

logger = logging.getLogger(__name__)

IDLE_MB = 800
"""What a driver and a display hold on a GPU that nobody uses; more than this, and it is busy."""


@dataclass
class GpuOffice:
    """Measures the GPUs and knows which ones are in the hands of this worker's attempts."""

    probe: GpuProbe
    allowed: frozenset[int] | None = None
    """Indices that a person gave to this worker; None = all."""
    told: str = ""
    """The last trouble, so that it is logged once."""

    def inventory(self) -> list[dict[str, Any]]:
        """The GPUs for a registration; empty when the driver does not answer."""
        return [
            {"index": g.index, "uuid": g.uuid, "name": g.name, "memory_mb": g.memory_mb}
            for g in self._read()
        ]

    def offer(self, held: Iterable[int]) -> tuple[list[int], list[dict[str, Any]]]:
        """Free GPUs, and the foreign processes that share this host's GPUs.

        Args:
            held: indices that attempts of this worker hold; never offered, and their processes are not foreign.
        """
        mine = set(held)
        readings = self._read()
        free = [g.index for g in readings if g.index not in mine and is_free(g)]
        return free, [
            {"gpu": g.index, "pid": p.pid, "name": p.name[:200], "memory_mb": p.memory_mb}
            for g in readings
            if g.index not in mine
            for p in g.processes
        ]

    def busy(self, wanted: Iterable[int]) -> list[int]:
        """Of ``wanted``, those that are not measured free now: after an attempt's end they should be none."""
        indices = set(wanted)
        return [g.index for g in self._read() if g.index in indices and not is_free(g)]

    def absent(self) -> list[int]:
        """GPUs that a person gave to this worker and that the host does not have, or that fell off its bus."""
        there = {g.index for g in self._read()}
        return sorted((self.allowed or frozenset()) - there)

    def readings(self) -> list[GpuReading]:
        """What is measured now of the GPUs that this worker may use; empty when the driver does not answer."""
        return self._read()

    def _read(self) -> list[GpuReading]:
        try:
            found = self.probe.read()
        except HostError as error:
            if self.told != error.message:
                logger.warning("%s", error)
            self.told = error.message
            return []
        self.told = ""
        return [g for g in found if self.allowed is None or g.index in self.allowed]


def is_free(reading: GpuReading) -> bool:
    """No process on it and no more memory in use than an idle driver takes."""
    return not reading.processes and reading.used_mb <= IDLE_MB


def parse_indices(text: str) -> frozenset[int]:
    """``0-3,6`` as a set of indices.

    Raises:
        ValueError: anything else, in words.
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = (low, high if dash else low)
        if not all(e.isascii() and e.isdigit() for e in ends) or int(ends[0]) > int(ends[1]):
            msg = f"{text!r} is no list of GPUs: write indices and ranges, as in 0-3,6"
            raise ValueError(msg)
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return frozenset(found)
