"""What a decision about a best level, a comparison or an interaction rests on: as JSON, and in a line for people."""

from __future__ import annotations

from a3r.report.contrast_results import ContrastAnalysis, Judged
from a3r.report.numbers import interval, scalar_text
from a3r.report.results import Cell


def contrast_evidence(analysis: ContrastAnalysis) -> dict[str, object]:
    """Means, counts, differences and statuses."""
    return {
        "cells": [_cell(cell) for found in analysis.conditions for cell in found.cells],
        "contrasts": [
            {
                "condition": c.condition,
                "level": c.level,
                "against": c.against,
                **_judged(c),
            }
            for found in analysis.conditions
            for c in found.contrasts
        ],
        "interactions": [
            {
                "level": f.level,
                "against": f.against,
                "condition": f.condition,
                "other": f.other,
                **_judged(f),
            }
            for f in analysis.interactions
        ],
        "claims": [
            {
                "condition": found.condition,
                "leader": found.leader,
                "status": found.status.value,
                "reason": found.reason,
            }
            for found in analysis.conditions
        ],
        "status": analysis.status.value,
        "family": analysis.family,
    }


def _cell(cell: Cell) -> dict[str, object]:
    return {
        "condition": cell.condition,
        "level": cell.level,
        "n": len(cell.gains),
        "planned": cell.planned,
        "mean": cell.all_seeds.mean if cell.all_seeds else None,
        "fresh_n": cell.fresh.n if cell.fresh else 0,
        "fresh_mean": cell.fresh.mean if cell.fresh else None,
        "camps": cell.camps,
    }


def _judged(found: Judged) -> dict[str, object]:
    return {
        "pairs": len(found.seeds),
        "difference": found.difference.mean if found.difference else None,
        "low": found.difference.low if found.difference else None,
        "high": found.difference.high if found.difference else None,
        "first_look": found.first_look,
        "verdict": found.verdict.value,
    }


def means_text(analysis: ContrastAnalysis) -> str:
    """One line a condition: its cells' means over all seeds with intervals."""
    lines: list[str] = []
    for found in analysis.conditions:
        cells = ", ".join(
            f"{scalar_text(c.level)}: {interval(c.all_seeds)}" for c in found.cells if c.all_seeds
        )
        where = "all"
        if analysis.across is not None:
            where = f"at {analysis.across} {scalar_text(found.condition)}"
        lines.append(f"{where}: {cells or 'no result'}")
    return "; ".join(lines)
