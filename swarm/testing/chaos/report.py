"""What a run of chaos has to say: one line that counts, a table, and a document."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from swarm.testing.chaos.lane import Outcome


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return ``faults N, lost 0, doubled 0``, and what else is wrong, if anything is."""
    faults = sum(o.faults for o in outcomes)
    lost = sum(len(o.findings.lost) for o in outcomes)
    doubled = sum(len(o.findings.doubled) for o in outcomes)
    wrong = sum(len(o.findings.wrong) for o in outcomes)
    unfinished = sum(bool(o.problem) for o in outcomes)
    line = f"faults {faults}, lost {lost}, doubled {doubled}"
    if wrong or unfinished:
        line += f", otherwise wrong {wrong}, lanes that did not end {unfinished}"
    return line


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the faults by kind with the seconds until the next answered finish, and the lanes with what they prove."""
    rows = [f"{'fault':28} {'times':>5}  {'median s':>8}  {'most s':>7}"]
    for kind, seconds in sorted(_by_kind(outcomes).items()):
        known = [s for s in seconds if s is not None]
        median = f"{statistics.median(known):8.2f}" if known else f"{'':8}"
        most = f"{max(known):7.2f}" if known else ""
        rows.append(f"{kind:28} {len(seconds):5}  {median}  {most}")
    rows += [
        "",
        f"{'lane':10} {'faults':>6} {'acknowledged':>12} {'steps':>6} {'seconds':>8}  verdict",
    ]
    for o in outcomes:
        said = "as undisturbed" if o.compared else "nothing lost or doubled"
        words = said if o.clean else "FAILED"
        words += f", {o.split} on one of two servers only" if o.split else ""
        f = o.findings
        rows.append(
            f"{o.name:10} {o.faults:6} {f.episodes:12} {f.steps:6} {o.wall_s:8.1f}  {words}"
        )
    return "\n".join(rows)


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """Return everything that was found, by lane; empty = nothing."""
    found: list[str] = []
    for o in outcomes:
        f = o.findings
        found += [f"{o.name}: lost: {text}" for text in f.lost]
        found += [f"{o.name}: doubled: {text}" for text in f.doubled]
        found += [f"{o.name}: wrong: {text}" for text in f.wrong]
        if o.problem:
            found.append(f"{o.name}: {o.problem}")
    return found


def document(outcomes: Sequence[Outcome], *, seed: int, wall_s: float) -> dict[str, Any]:
    """Return the run as one JSON document."""
    kinds = _by_kind(outcomes)
    return {
        "verdict": verdict(outcomes),
        "seed": seed,
        "cpus": os.cpu_count(),
        "load_at_end": round(os.getloadavg()[0], 1),
        "wall_s": round(wall_s, 1),
        "faults": {kind: len(seconds) for kind, seconds in sorted(kinds.items())},
        "recovery_median_s": {
            kind: round(statistics.median(known), 2)
            for kind, seconds in sorted(kinds.items())
            if (known := [s for s in seconds if s is not None])
        },
        "lanes": [
            {
                "name": o.name,
                "faults": o.faults,
                "acknowledged": o.findings.episodes,
                "steps": o.findings.steps,
                "same_weights_as_undisturbed": o.compared and o.clean,
                "wall_s": round(o.wall_s, 1),
            }
            for o in outcomes
        ],
        "problems": problems(outcomes),
    }


def _by_kind(outcomes: Sequence[Outcome]) -> dict[str, list[float | None]]:
    kinds: dict[str, list[float | None]] = defaultdict(list)
    for o in outcomes:
        for kind, seconds in o.recovery_s.items():
            kinds[kind] += seconds
        for kind, count in o.by_chance.items():
            kinds[kind] += [None] * count
    return kinds
