"""The doctor's look at an engine: asks ``swarm doctor``, which knows it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from a3r.cli.doctor_checks import Check

LIMIT_S, SMOKE_LIMIT_S = 600.0, 1800.0


def engine_checks(engine: str, *, smoke: bool) -> list[Check]:
    """Return what ``swarm doctor --engine`` finds; a doctor that does not answer is one failed check."""
    command = [sys.executable, "-m", "swarm.cli", "doctor", "--engine", engine, "--json"]
    limit_s = SMOKE_LIMIT_S if smoke else LIMIT_S
    try:
        done = subprocess.run(
            [*command, *(["--smoke"] if smoke else [])],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Check(f"engine {engine}", "fail", f"no answer in {limit_s:.0f} s", "Run it alone.")]
    try:
        body: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return [Check(f"engine {engine}", "fail", last, f"Run: swarm doctor --engine {engine}")]
    if "error" in body:
        error = body["error"]
        return [Check(f"engine {engine}", "fail", error["message"], error.get("hint", ""))]
    return [Check(**check) for check in body["checks"]]
