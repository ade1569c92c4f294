"""Figures: data computed from records (``verify`` recomputes it) and SVG drawn from the data (deterministic bytes)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from a3r.report.numbers import level_text, scalar_text
from a3r.report.records import Records
from a3r.report.results import ConditionAnalysis, MinimumAnalysis

COLOURS = ("#1b6ca8", "#c8553d", "#2e8b57", "#7d5ba6", "#8a6d1b", "#555555")
SALT = "a3r"


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
CURVES = Figure(
    "learning-curves",
    "Learning curves",
    "Mean training reward by step at the claimed minimum and the level below it, one line a run. Training reward shows the course of a run; no claim uses it.",
)
FIGURES = (GAIN, CURVES)


def figure_data(records: Records, analysis: MinimumAnalysis) -> dict[str, Any]:
    """Path of the data file -> its JSON."""
    return {GAIN.data: _gain_data(analysis), CURVES.data: _curve_data(records, analysis)}


def draw(data: dict[str, Any]) -> dict[str, bytes]:
    """Path of the SVG -> its bytes; needs matplotlib."""
    return {
        GAIN.svg: _svg(data[GAIN.data], _draw_gain),
        CURVES.svg: _svg(data[CURVES.data], _draw_curves),
    }


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


def _curve_data(records: Records, analysis: MinimumAnalysis) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    for found in analysis.conditions:
        for level in _shown_levels(found):
            cell = found.cell(level)
            runs = [
                {
                    "run": g.run_id,
                    "seed": g.seed,
                    "steps": [s.step for s in records.steps_of(g.run_id)],
                    "reward": [s.reward_mean for s in records.steps_of(g.run_id)],
                }
                for g in (cell.gains if cell else ())
            ]
            title = f"{_label(analysis, found)} {analysis.factor} {level_text(level)}".strip()
            panels.append({"title": title, "runs": runs})
    return {"panels": panels}


def _shown_levels(found: ConditionAnalysis) -> list[float]:
    """Level below and claimed minimum; without a claim the highest level tested."""
    if found.claimed is None:
        tested = [c.level for c in found.cells if c.gains]
        return tested[-1:]
    return [x for x in (found.below, found.claimed) if x is not None]


def _label(analysis: MinimumAnalysis, found: ConditionAnalysis) -> str:
    return f"{analysis.across} {scalar_text(found.condition)}" if analysis.across else ""


def _svg(data: dict[str, Any], drawer: Any) -> bytes:
    """Draw on a fresh figure with fixed settings: no date, salted ids, text kept as text."""
    matplotlib: Any = import_module("matplotlib")  # ships types too loose for strict checking
    figure_module: Any = import_module("matplotlib.figure")
    settings = {
        "svg.hashsalt": SALT,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "path.simplify": False,
    }
    with matplotlib.rc_context(rc=matplotlib.rcParamsDefault):
        matplotlib.rcParams.update(settings)
        figure = figure_module.Figure(layout="constrained")
        drawer(figure, data)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw_gain(figure: Any, data: dict[str, Any]) -> None:
    figure.set_size_inches(6.4, 3.6)
    axes = figure.subplots()
    positions = {level: index for index, level in enumerate(data["levels"])}
    count = len(data["series"])
    for index, series in enumerate(data["series"]):
        colour = COLOURS[index % len(COLOURS)]
        shift = (index - (count - 1) / 2) * 0.16
        label = series["label"] or None
        for point in series["points"]:
            x = positions.get(point["level"])
            if x is None:
                continue
            if point["all"]:
                axes.plot(
                    [x + shift],
                    [point["all"]["mean"]],
                    "o",
                    mfc="white",
                    mec=colour,
                    ms=6,
                    zorder=2,
                )
            fresh = point["fresh"]
            if fresh and fresh["low"] is not None:
                axes.plot(
                    [x + shift] * 2, [fresh["low"], fresh["high"]], "-", color=colour, zorder=3
                )
                axes.plot([x + shift], [fresh["mean"]], "o", color=colour, ms=5, zorder=4)
        axes.plot([], [], "o", color=colour, label=label)
    axes.axhline(data["min_gain"], color="#888888", ls="--", lw=1, zorder=1)
    axes.set_xticks(range(len(positions)), [level_text(x) for x in data["levels"]])
    axes.set_xlabel(data["x"])
    axes.set_ylabel("held-out gain")
    if any(series["label"] for series in data["series"]):
        axes.legend(frameon=False)


def _draw_curves(figure: Any, data: dict[str, Any]) -> None:
    panels: list[dict[str, Any]] = data["panels"] or [{"title": "no run has a result", "runs": []}]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure.set_size_inches(3.4 * columns, 2.4 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for index, axes in enumerate(grid.flat):
        if index >= len(panels):
            axes.set_axis_off()
            continue
        for number, run in enumerate(panels[index]["runs"]):
            # a missing reward leaves a gap in the line
            rewards = [float("nan") if r is None else r for r in run["reward"]]
            axes.plot(run["steps"], rewards, color=COLOURS[number % len(COLOURS)], lw=0.9)
        axes.set_title(panels[index]["title"], fontsize=8)
        axes.set_xlabel("step")
        axes.set_ylabel("training reward")
