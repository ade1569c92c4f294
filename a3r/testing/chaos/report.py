"""What a run of chaos has to say: one line that counts, a table, and a document."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from a3r.testing.chaos.findings import Outcome


def verdict(outcomes: Sequence[Outcome]) -> str:
    """``faults N, lost 0, doubled 0, foreign 0``, and what else is wrong, if anything is."""
    found = [o.findings for o in outcomes]
    faults = sum(o.faults for o in outcomes)
    lost, doubled = (sum(len(getattr(f, kind)) for f in found) for kind in ("lost", "doubled"))
    line = f"faults {faults}, lost {lost}, doubled {doubled}, foreign {sum(len(f.foreign) for f in found)}"
    others = {
        "not returned": sum(len(f.kept) for f in found),
        "otherwise wrong": sum(len(f.wrong) for f in found),
        "lanes that did not end": sum(bool(o.problem) for o in outcomes),
        "lanes that this machine cannot play": sum(bool(o.skipped) for o in outcomes),
    }
    return "".join([line, *(f", {what} {count}" for what, count in others.items() if count)])


def table(outcomes: Sequence[Outcome]) -> str:
    """The faults by kind with the seconds until things went on, and the lanes."""
    rows = [f"{'fault':44} {'times':>5}  {'median s':>8}  {'most s':>7}"]
    for kind, seconds in sorted(_by_kind(outcomes).items()):
        median, most = statistics.median(seconds), max(seconds)
        rows.append(f"{kind:44} {len(seconds):5}  {median:8.2f}  {most:7.2f}")
    head = f"{'lane':12} {'faults':>6} {'runs':>5} {'bystanders':>10} {'seconds':>8}  verdict"
    rows += ["", head]
    for o in outcomes:
        words = "nothing lost, doubled or foreign" if o.clean else "FAILED"
        words = f"not played: {o.skipped}" if o.skipped else words
        f = o.findings
        rows.append(
            f"{o.name:12} {o.faults:6} {f.runs:5} {f.bystanders:10} {o.wall_s:8.1f}  {words}"
        )
    return "\n".join(rows)


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """Everything that was found, by lane; empty = nothing."""
    found: list[str] = []
    for o in outcomes:
        found += [f"{o.name}: {line}" for line in o.findings.lines()]
        found += [f"{o.name}: {o.problem}"] if o.problem else []
    return found


def document(outcomes: Sequence[Outcome], *, seed: int, wall_s: float) -> dict[str, Any]:
    """The run as one JSON document."""
    kinds = _by_kind(outcomes)
    return {
        "verdict": verdict(outcomes),
        "seed": seed,
        "cpus": os.cpu_count(),
        "load_at_end": round(os.getloadavg()[0], 1),
        "wall_s": round(wall_s, 1),
        "faults": {kind: len(seconds) for kind, seconds in sorted(kinds.items())},
        "recovery_median_s": {
            kind: round(statistics.median(seconds), 2) for kind, seconds in sorted(kinds.items())
        },
        "lanes": [
            {
                "name": o.name,
                "faults": o.faults,
                "runs": o.findings.runs,
                "bystanders": o.findings.bystanders,
                "skipped": o.skipped,
                "wall_s": round(o.wall_s, 1),
            }
            for o in outcomes
        ],
        "problems": problems(outcomes),
    }


def _by_kind(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    kinds: dict[str, list[float]] = defaultdict(list)
    for o in outcomes:
        for kind, seconds in o.recovery_s.items():
            kinds[kind] += seconds
    return kinds
