"""The report of a GPU check: one JSON record, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STATES = ("ok", "failed", "timeout", "skipped", "cut off", "not run")
"""cut off: gpu-check itself was ended while this one ran; not run: and what would have followed."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case. ``state`` is one of ``STATES``; ``findings`` are the probe's, as plain data."""

    name: str
    says: str
    state: str
    seconds: float
    detail: str = ""
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def as_json(
    outcomes: Sequence[Outcome], machine: Mapping[str, Any], *, rehearsal: bool = False
) -> dict[str, Any]:
    """Return the record; ``ok`` is whether all were done and nothing failed (skipped is not failed, and is listed)."""
    names = {state: [o.name for o in outcomes if o.state == state] for state in STATES}
    bad = names["failed"] + names["timeout"]
    open_ones = names["cut off"] + names["not run"]
    return {
        "ok": not bad and not open_ones,
        "rehearsal": rehearsal,
        "failed": bad,
        "skipped": names["skipped"],
        "unfinished": open_ones,
        "machine": dict(machine),
        "cases": [vars(outcome) for outcome in outcomes],
    }


def as_markdown(record: dict[str, Any]) -> str:
    """Return the record for people."""
    lines = ["# GPU check", ""]
    if record["rehearsal"]:
        lines += [
            "**A rehearsal on the CPU: the checks themselves were tried, and nothing about a GPU.**",
            "",
        ]
    if record["unfinished"]:
        lines += [f"**Ended early; open: {', '.join(record['unfinished'])}.**", ""]
    lines += [f"- {line}" for line in record["machine"]["gpus"]]
    versions = record["machine"]["versions"]
    lines += [f"- {', '.join(f'{name} {version}' for name, version in versions.items())}", ""]
    lines += ["| check | outcome | s | |", "|---|---|---|---|"]
    for case in record["cases"]:
        lines.append(
            f"| {case['name']} | {case['state']} | {case['seconds']:.0f} | {_cell(case['detail'])} |"
        )
    for case in record["cases"]:
        failed = [f for f in case["findings"] if not f["ok"]]
        if failed:
            lines += ["", f"## {case['name']}", ""]
            lines += [f"- **{f['name']}**: {_cell(f['detail'])}" for f in failed]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:400]
