"""NVIDIA's management library as ``GpuProbe``. Only reads; no setting of a GPU is ever touched."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

from a3r.core.errors import HostError
from a3r.core.ports import GpuProcess, GpuReading

MIB = 2**20


class NvmlProbe:
    """Asks the driver anew each time: a GPU can fall off the bus, and a driver can be updated, under a running worker."""

    def read(self) -> list[GpuReading]:
        """See ``GpuProbe``. A host without NVIDIA's library or driver has no GPUs."""
        nvml = _library()
        if nvml is None:
            return []
        error: Any = nvml.NVMLError
        try:
            nvml.nvmlInit()
        except error:
            return []  # the library is there (a Python package), the driver is not
        try:
            return [_reading(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        except error as failure:
            raise HostError(
                f"The NVIDIA driver does not answer: {failure}.",
                hint="`nvidia-smi` says more; until it works this host offers no GPU.",
            ) from failure
        finally:
            with suppress(error):
                nvml.nvmlShutdown()


def _library() -> Any:
    try:
        return import_module("pynvml")  # optional: hosts without GPUs need none of it
    except ImportError:
        return None


def _reading(nvml: Any, index: int) -> GpuReading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuReading(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_mb=memory.total // MIB,
        used_mb=memory.used // MIB,
        processes=tuple(_processes(nvml, handle)),
    )


def _processes(nvml: Any, handle: Any) -> list[GpuProcess]:
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return []  # not supported here: the memory in use has to tell
    return [_process(nvml, entry) for entry in found]


def _process(nvml: Any, entry: Any) -> GpuProcess:
    name = ""
    with suppress(nvml.NVMLError):
        name = _text(nvml.nvmlSystemGetProcessName(entry.pid))
    used = entry.usedGpuMemory
    return GpuProcess(entry.pid, name, None if used is None else used // MIB)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
