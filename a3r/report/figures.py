"""Figures as data, computed from records: ``verify`` recomputes it. ``a3r.report.drawing`` makes SVG of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from a3r.report.analysis import Analysis
from a3r.report.contrast_results import ConditionContrasts, ContrastAnalysis
from a3r.report.numbers import scalar_text
from a3r.report.records import Records, Scalar
from a3r.report.results import Cell, ConditionAnalysis
from a3r.report.timeline import timeline
from a3r.stats.intervals import mean_interval

GAIN_WORDS, FINAL_WORDS = "held-out gain", "final held-out reward"
SHOWN = 4
"""Learning curves a condition, at most."""


@dataclass(frozen=True)
class Figure:
    """Names of a figure's files and its text."""

    name: str
    title: str
    caption: str

    @property
    def svg(self) -> str:
        """Path in the report's folder."""
        return f"figures/{self.name}.svg"

    @property
    def data(self) -> str:
        """Path in the report's folder."""
        return f"figures/{self.name}.json"


GAIN = Figure(
    "gain-by-level",
    "Gain by level",
    "Mean held-out gain over version 0 (or the final value, as the axis says) by level. Filled: fresh seeds with their t interval; hollow: all seeds, exploratory. A dashed line is the gain that counts as training.",
)
HEAT = Figure(
    "gain-by-both-factors",
    "Gain by both factors",
    "Mean over all admissible seeds, exploratory, with the number of seeds. A thick frame: the cell is shown to train on fresh seeds. Empty: no result.",
)
EFFECTS = Figure(
    "effects",
    "Differences between cells",
    "Each comparison on fresh seeds, paired by seed: mean difference with its t interval. Filled: shown to differ or to be equivalent after correction; hollow: neither. The grey band: differences that are too small to matter, where the goal names a size.",
)
CURVES = Figure(
    "learning-curves",
    "Learning curves",
    "Training reward by step at the levels that the answer is about: one thin line a run, their mean with its t interval over seeds as a band. Training reward shows the course of a run; no claim uses it.",
)
TIMELINE = Figure(
    "timeline",
    "Timeline",
    "Every attempt from its lease to its end, by stage; hatched: its results were not accepted. Lines: decisions of the leader.",
)


def figures(analysis: Analysis) -> tuple[Figure, ...]:
    """The figures of this study in order; the heat map only where two factors were varied, effects where cells are compared."""
    two = analysis.across is not None and len(analysis.conditions) > 1
    compares = isinstance(analysis, ContrastAnalysis)
    wanted = {GAIN: True, EFFECTS: compares, HEAT: two, CURVES: True, TIMELINE: True}
    return tuple(figure for figure, there in wanted.items() if there)


def figure_data(records: Records, analysis: Analysis) -> dict[str, Any]:
    """Path of the data file -> its JSON."""
    makers: dict[Figure, Callable[[], Any]] = {
        GAIN: lambda: _gain_data(analysis),
        EFFECTS: lambda: _effect_data(analysis),
        HEAT: lambda: _heat_data(analysis),
        CURVES: lambda: _curve_data(records, analysis),
        TIMELINE: lambda: timeline(records),
    }
    return {f.data: makers[f]() for f in figures(analysis)}


def measured(analysis: Analysis) -> str:
    """What one run contributes, in words."""
    final = isinstance(analysis, ContrastAnalysis) and analysis.measure == "final"
    return FINAL_WORDS if final else GAIN_WORDS


def _gain_data(analysis: Analysis) -> dict[str, Any]:
    return {
        "x": analysis.factor,
        "y": measured(analysis),
        "levels": list(analysis.levels),
        "min_gain": None if isinstance(analysis, ContrastAnalysis) else analysis.min_gain,
        "confidence": analysis.confidence,
        "series": [
            {
                "label": _label(analysis, found),
                "points": [
                    {
                        "level": c.level,
                        "all": c.all_seeds.model_dump(mode="json") if c.all_seeds else None,
                        "fresh": c.fresh.model_dump(mode="json") if c.fresh else None,
                    }
                    for c in found.cells
                ],
            }
            for found in analysis.conditions
        ],
    }


def _effect_data(analysis: Analysis) -> dict[str, Any]:
    if not isinstance(analysis, ContrastAnalysis):
        return {}
    rows = [
        {
            "label": f"{_label(analysis, found)} {c.level} - {c.against}".strip(),
            "difference": c.difference.model_dump(mode="json") if c.difference else None,
            "verdict": str(c.verdict),
        }
        for found in analysis.conditions
        for c in found.contrasts
    ]
    rows += [
        {
            "label": f"({c.level} - {c.against}): {c.condition} - {c.other}",
            "difference": c.difference.model_dump(mode="json") if c.difference else None,
            "verdict": str(c.verdict),
        }
        for c in analysis.interactions
    ]
    return {
        "factor": analysis.factor,
        "smallest_effect": analysis.smallest_effect,
        "confidence": analysis.confidence,
        "rows": rows,
    }


def _heat_data(analysis: Analysis) -> dict[str, Any]:
    return {
        "x": analysis.factor,
        "y": analysis.across,
        "levels": list(analysis.levels),
        "conditions": [found.condition for found in analysis.conditions],
        "measured": measured(analysis),
        "cells": [
            {
                "level": c.level,
                "condition": c.condition,
                "mean": c.all_seeds.mean if c.all_seeds else None,
                "n": c.all_seeds.n if c.all_seeds else 0,
                "trains": str(c.verdict) == "trains",
            }
            for found in analysis.conditions
            for c in found.cells
        ],
    }


def _curve_data(records: Records, analysis: Analysis) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    for found in analysis.conditions:
        for level in _shown_levels(found):
            cell = _cell(found, level)
            runs = [_curve(records, g.run_id, g.seed) for g in (cell.gains if cell else ())]
            title = f"{_label(analysis, found)} {analysis.factor} {scalar_text(level)}".strip()
            band = _band(runs, analysis.confidence)
            panels.append({"title": title, "runs": runs, "band": band})
    return {"confidence": analysis.confidence, "panels": panels}


def _curve(records: Records, run_id: str, seed: int) -> dict[str, Any]:
    steps = records.steps_of(run_id)
    return {
        "run": run_id,
        "seed": seed,
        "steps": [s.step for s in steps],
        "reward": [s.reward_mean for s in steps],
    }


def _band(runs: list[dict[str, Any]], confidence: float) -> list[dict[str, Any]]:
    """Mean and t interval by step over the runs that have a reward there; bounds are None for fewer than two."""
    by_step: dict[int, list[float]] = {}
    for run in runs:
        for step, reward in zip(run["steps"], run["reward"], strict=True):
            if reward is not None:
                by_step.setdefault(step, []).append(reward)
    out: list[dict[str, Any]] = []
    for step in sorted(by_step):
        found = mean_interval(by_step[step], confidence)
        out.append(
            {"step": step, "low": found.low, "mean": found.mean, "high": found.high, "n": found.n}
        )
    return out


def _shown_levels(found: ConditionAnalysis | ConditionContrasts) -> list[Scalar]:
    """Of a minimum: the level below and the claimed one, else the highest tested. Of a comparison: leader or baseline, then others."""
    tested = [c.level for c in found.cells if c.gains]
    if isinstance(found, ConditionContrasts):
        others = [x for x in tested if x != found.leader and _is_fresh(found, x)]
        return [x for x in (found.leader, *others) if x in tested][:SHOWN]
    if found.claimed is None:
        return tested[-1:]
    return [x for x in (found.below, found.claimed) if x is not None]


def _cell(found: ConditionAnalysis | ConditionContrasts, level: Scalar) -> Cell | None:
    return next((c for c in found.cells if c.level == level), None)


def _is_fresh(found: ConditionContrasts, level: Scalar) -> bool:
    cell = _cell(found, level)
    return cell is not None and cell.fresh_planned > 0


def _label(analysis: Analysis, found: ConditionAnalysis | ConditionContrasts) -> str:
    return f"{analysis.across} {scalar_text(found.condition)}" if analysis.across else ""
