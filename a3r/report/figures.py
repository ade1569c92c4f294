"""Figures as data, computed from records: ``verify`` recomputes it. ``a3r.report.drawing`` makes SVG of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from a3r.report.numbers import scalar_text
from a3r.report.records import Records, Scalar
from a3r.report.results import ConditionAnalysis, MinimumAnalysis
from a3r.report.timeline import timeline
from a3r.stats.intervals import mean_interval


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
    "Mean held-out gain over version 0 by level. Filled: fresh seeds with their t interval; hollow: all seeds, exploratory. The dashed line is the gain that counts as training.",
)
HEAT = Figure(
    "gain-by-both-factors",
    "Gain by both factors",
    "Mean held-out gain over all admissible seeds, exploratory, with the number of seeds. A thick frame: the cell trains on fresh seeds. Empty: no result.",
)
CURVES = Figure(
    "learning-curves",
    "Learning curves",
    "Training reward by step at the claimed minimum and the level below it: one thin line a run, their mean with its t interval over seeds as a band. Training reward shows the course of a run; no claim uses it.",
)
TIMELINE = Figure(
    "timeline",
    "Timeline",
    "Every attempt from its lease to its end, by stage; hatched: its results were not accepted. Lines: decisions of the leader.",
)


def figures(analysis: MinimumAnalysis) -> tuple[Figure, ...]:
    """The figures of this study in order; the heat map only where two factors were varied."""
    two = analysis.across is not None and len(analysis.conditions) > 1
    return (GAIN, HEAT, CURVES, TIMELINE) if two else (GAIN, CURVES, TIMELINE)


def figure_data(records: Records, analysis: MinimumAnalysis) -> dict[str, Any]:
    """Path of the data file -> its JSON."""
    makers: dict[Figure, Callable[[], Any]] = {
        GAIN: lambda: _gain_data(analysis),
        HEAT: lambda: _heat_data(analysis),
        CURVES: lambda: _curve_data(records, analysis),
        TIMELINE: lambda: timeline(records),
    }
    return {f.data: makers[f]() for f in figures(analysis)}


def _gain_data(analysis: MinimumAnalysis) -> dict[str, Any]:
    return {
        "x": analysis.factor,
        "levels": list(analysis.levels),
        "min_gain": analysis.min_gain,
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


def _heat_data(analysis: MinimumAnalysis) -> dict[str, Any]:
    return {
        "x": analysis.factor,
        "y": analysis.across,
        "levels": list(analysis.levels),
        "conditions": [found.condition for found in analysis.conditions],
        "min_gain": analysis.min_gain,
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


def _curve_data(records: Records, analysis: MinimumAnalysis) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    for found in analysis.conditions:
        for level in _shown_levels(found):
            cell = found.cell(level)
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


def _shown_levels(found: ConditionAnalysis) -> list[Scalar]:
    """Level below and claimed minimum; without a claim the highest level tested."""
    if found.claimed is None:
        tested = [c.level for c in found.cells if c.gains]
        return tested[-1:]
    return [x for x in (found.below, found.claimed) if x is not None]


def _label(analysis: MinimumAnalysis, found: ConditionAnalysis) -> str:
    return f"{analysis.across} {scalar_text(found.condition)}" if analysis.across else ""
