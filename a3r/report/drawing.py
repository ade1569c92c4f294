"""SVG drawn from a figure's data by matplotlib: deterministic bytes for one version of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from typing import Any

from a3r.report.figures import CURVES, EFFECTS, GAIN, HEAT, TIMELINE
from a3r.report.numbers import scalar_text, signed

COLOURS = ("#1b6ca8", "#c8553d", "#2e8b57", "#7d5ba6", "#8a6d1b", "#555555")
GREY = "#888888"
SALT = "a3r"
Draw = Callable[[Any, dict[str, Any]], None]


def draw(data: dict[str, Any]) -> dict[str, bytes]:
    """Path of the SVG -> its bytes, for each figure that ``data`` (path of the data file -> its JSON) holds."""
    return {f.svg: _svg(data[f.data], drawer) for f, drawer in _DRAWERS.items() if f.data in data}


def _svg(data: dict[str, Any], drawer: Draw) -> bytes:
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
        # text from outside stays text: a "$" begins no formula
        "text.parse_math": False,
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
        for point in series["points"]:
            if point["level"] in positions:
                _draw_point(axes, positions[point["level"]] + shift, point, colour)
        axes.plot([], [], "o", color=colour, label=series["label"] or None)
    if data["min_gain"] is not None:
        axes.axhline(data["min_gain"], color=GREY, ls="--", lw=1, zorder=1)
    axes.set_xticks(range(len(positions)), [scalar_text(x) for x in data["levels"]])
    axes.set_xlabel(data["x"])
    axes.set_ylabel(data["y"])
    if any(series["label"] for series in data["series"]):
        axes.legend(frameon=False)


def _draw_point(axes: Any, x: float, point: dict[str, Any], colour: str) -> None:
    if point["all"]:
        mean = point["all"]["mean"]
        axes.plot([x], [mean], "o", mfc="white", mec=colour, ms=6, zorder=2)
    fresh = point["fresh"]
    if fresh and fresh["low"] is not None:
        axes.plot([x, x], [fresh["low"], fresh["high"]], "-", color=colour, zorder=3)
        axes.plot([x], [fresh["mean"]], "o", color=colour, ms=5, zorder=4)


def _draw_effects(figure: Any, data: dict[str, Any]) -> None:
    rows: list[dict[str, Any]] = data["rows"]
    figure.set_size_inches(6.4, 1.2 + 0.3 * max(1, len(rows)))
    axes = figure.subplots()
    margin = data["smallest_effect"]
    if margin is not None:
        axes.axvspan(-margin, margin, color=GREY, alpha=0.2, lw=0)
    axes.axvline(0, color=GREY, lw=1)
    for place, row in enumerate(rows):
        found = row["difference"]
        if found is None:
            continue
        if found["low"] is not None:
            axes.plot([found["low"], found["high"]], [place, place], "-", color=COLOURS[0])
        shown = row["verdict"] in ("higher", "lower", "equivalent")
        fill = COLOURS[0] if shown else "white"
        axes.plot([found["mean"]], [place], "o", mfc=fill, mec=COLOURS[0], ms=6)
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(f"difference between levels of {data['factor']}")


def _draw_heat(figure: Any, data: dict[str, Any]) -> None:
    patches: Any = import_module("matplotlib.patches")
    levels, conditions = data["levels"], data["conditions"]
    figure.set_size_inches(max(4.0, 0.9 * len(levels) + 1.6), max(2.0, 0.6 * len(conditions) + 1.2))
    axes = figure.subplots()
    nan = float("nan")
    grid = [[nan] * len(levels) for _ in conditions]
    for cell in data["cells"]:
        if cell["mean"] is not None and cell["level"] in levels:
            grid[conditions.index(cell["condition"])][levels.index(cell["level"])] = cell["mean"]
    known = [abs(c["mean"]) for c in data["cells"] if c["mean"] is not None]
    widest = max(known, default=0.0) or 1.0
    image = axes.imshow(grid, cmap="PuOr", vmin=-widest, vmax=widest, aspect="auto")
    for cell in data["cells"]:
        if cell["mean"] is None or cell["level"] not in levels:
            continue
        x, y = levels.index(cell["level"]), conditions.index(cell["condition"])
        ink = "white" if abs(cell["mean"]) > 0.6 * widest else "black"
        text = f"{signed(cell['mean'])}\nn = {cell['n']}"
        axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=7)
        if cell["trains"]:
            box = patches.Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, fill=False, lw=2)
            axes.add_patch(box)
    axes.set_xticks(range(len(levels)), [scalar_text(x) for x in levels])
    axes.set_yticks(range(len(conditions)), [scalar_text(x) for x in conditions])
    axes.set_xlabel(data["x"])
    axes.set_ylabel(data["y"])
    figure.colorbar(image, ax=axes, label=data["measured"])


def _draw_curves(figure: Any, data: dict[str, Any]) -> None:
    nothing: dict[str, Any] = {"title": "no run has a result", "runs": [], "band": []}
    panels: list[dict[str, Any]] = data["panels"] or [nothing]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure.set_size_inches(3.4 * columns, 2.4 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for index, axes in enumerate(grid.flat):
        if index >= len(panels):
            axes.set_axis_off()
            continue
        _draw_panel(axes, panels[index])


def _draw_panel(axes: Any, panel: dict[str, Any]) -> None:
    for number, run in enumerate(panel["runs"]):
        # a missing reward leaves a gap in the line
        rewards = [float("nan") if r is None else r for r in run["reward"]]
        axes.plot(run["steps"], rewards, color=COLOURS[number % len(COLOURS)], lw=0.6, alpha=0.7)
    bounded = [p for p in panel["band"] if p["low"] is not None]
    steps = [p["step"] for p in bounded]
    low, high = [p["low"] for p in bounded], [p["high"] for p in bounded]
    axes.fill_between(steps, low, high, color=GREY, alpha=0.25, lw=0)
    axes.plot(steps, [p["mean"] for p in bounded], color="black", lw=1.4)
    axes.set_title(panel["title"], fontsize=8)
    axes.set_xlabel("step")
    axes.set_ylabel("training reward")


def _draw_timeline(figure: Any, data: dict[str, Any]) -> None:
    figure.set_size_inches(6.4, min(6.0, 1.4 + 0.3 * data["lanes"]))
    axes = figure.subplots()
    for stage in sorted({bar["stage"] for bar in data["bars"]}):
        axes.plot([], [], "s", color=COLOURS[(stage - 1) % len(COLOURS)], label=f"stage {stage}")
    for bar in data["bars"]:
        axes.barh(
            bar["lane"],
            bar["end"] - bar["start"],
            left=bar["start"],
            height=0.8,
            color=COLOURS[(bar["stage"] - 1) % len(COLOURS)],
            edgecolor="white",
            lw=0.5,
            hatch=None if bar["accepted"] else "////",
        )
    for mark in data["marks"]:
        axes.axvline(mark["at"], color=GREY, lw=0.7, ls=":")
    axes.set_xlabel("minutes since the campaign's start")
    axes.set_xlim(left=0)
    axes.set_yticks([])
    axes.set_ylabel("attempts at once")
    if data["bars"]:
        axes.legend(frameon=False, fontsize=7, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))


_DRAWERS: dict[Any, Draw] = {
    GAIN: _draw_gain,
    EFFECTS: _draw_effects,
    HEAT: _draw_heat,
    CURVES: _draw_curves,
    TIMELINE: _draw_timeline,
}
