"""The report of a GPU check: one JSON record, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What became of one case. ``state`` is ok, failed, skipped or timeout; ``findings`` are the kit's, as plain data."""

    name: str
    says: str
    state: str
    seconds: float
    detail: str = ""
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def as_json(outcomes: Sequence[Outcome], machine: dict[str, Any]) -> dict[str, Any]:
    """Return the record; ``ok`` is whether nothing failed (skipped is not failed, and is listed)."""
    bad = [o.name for o in outcomes if o.state in ("failed", "timeout")]
    skipped = [o.name for o in outcomes if o.state == "skipped"]
    body = [vars(outcome) for outcome in outcomes]
    return {"ok": not bad, "failed": bad, "skipped": skipped, "machine": machine, "cases": body}


def as_markdown(record: dict[str, Any]) -> str:
    """Return the record for people."""
    lines = ["# GPU check", "", *(f"- {line}" for line in record["machine"]["gpus"])]
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
