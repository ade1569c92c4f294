"""GPUs that are not there: a ``GpuProbe`` whose readings a test writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from a3r.core.errors import HostError
from a3r.core.ports import GpuProcess, GpuReading


@dataclass
class FakeGpus:
    """``count`` idle GPUs; ``use`` and ``leave`` change what is measured, ``fail`` makes the driver silent."""

    count: int
    memory_mb: int = 81_920
    silent: str = ""
    readings: dict[int, GpuReading] = field(default_factory=dict[int, GpuReading])

    def __post_init__(self) -> None:
        """All idle."""
        for index in range(self.count):
            uuid = f"GPU-fake-{index}"
            self.readings[index] = GpuReading(index, uuid, "Fake GPU", self.memory_mb, 4)

    def use(self, index: int, pid: int, memory_mb: int, name: str = "python") -> None:
        """A process takes memory on a GPU."""
        old = self.readings[index]
        process = GpuProcess(pid, name, memory_mb)
        used = old.used_mb + memory_mb
        self.readings[index] = replace(old, used_mb=used, processes=(*old.processes, process))

    def leave(self, index: int) -> None:
        """Everybody leaves it."""
        self.readings[index] = replace(self.readings[index], used_mb=4, processes=())

    def read(self) -> list[GpuReading]:
        """See ``GpuProbe``."""
        if self.silent:
            raise HostError(self.silent, hint="`nvidia-smi` says more.")
        return [self.readings[index] for index in sorted(self.readings)]
