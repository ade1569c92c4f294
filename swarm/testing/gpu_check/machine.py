"""What stands in the report about the machine: GPUs, driver, versions. Asks nvidia-smi and installed packages only."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata

PACKAGES = ("torch", "verl", "vllm", "ray", "transformers", "flash-attn", "megatron-core")
QUERY = "name,driver_version,memory.total,memory.used"


def gpus() -> list[str]:
    """One line a GPU: name, driver, memory in all and in use (MiB); empty without a driver that answers."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def used_mib() -> int:
    """Memory in use on all GPUs, MiB; 0 without any."""
    return sum(int(line.rsplit(",", 1)[1]) for line in gpus())


def versions() -> dict[str, str]:
    """Package -> version; ``absent`` when it is not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
