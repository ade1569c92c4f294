"""Which GPUs of a host the cluster's engine gave to this job: NVML shows all of them, the engine names ours in the environment."""

from __future__ import annotations

from collections.abc import Sequence

from a3r.core.ports import GpuReading

VARIABLE = "CUDA_VISIBLE_DEVICES"


def allotted(visible: str | None, readings: Sequence[GpuReading]) -> list[int] | None:
    """Indices that the job may use; None = the engine said nothing, so all. An empty value means none.

    Names are indices or (shortened) UUIDs, as CUDA reads them; the first that names no GPU ends the list, as with CUDA.
    """
    if visible is None:
        return None
    found: list[int] = []
    for name in (part.strip() for part in visible.split(",")):
        index = _index(name, readings)
        if index is None:
            break
        found.append(index)
    return found


def _index(name: str, readings: Sequence[GpuReading]) -> int | None:
    if not name:
        return None
    for gpu in readings:
        if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name)):
            return gpu.index
    return None
