"""What every benchmark shares: the machine in words, and writing one JSON result."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, Python; the load average says how quiet it was."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def write_result(name: str, command: str, figures: dict[str, Any]) -> None:
    """Write ``benchmarks/results/<name>.json`` and print it."""
    RESULTS.mkdir(exist_ok=True)
    body = {
        "name": name,
        "command": command,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        **figures,
    }
    text = json.dumps(body, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def best_of(times: int, action: Any) -> float:
    """Shortest wall time of ``times`` calls, seconds (the least disturbed one)."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)
