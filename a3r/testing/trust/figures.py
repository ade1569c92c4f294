"""The list of all trust figures: name -> what measures it, at a scale of 1 as published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from a3r.testing.trust.budget import budget_figure
from a3r.testing.trust.coverage import coverage_figures
from a3r.testing.trust.figure import Figure
from a3r.testing.trust.idle import idle_figure
from a3r.testing.trust.invented import invented_figure
from a3r.testing.trust.judged import referee_figures
from a3r.testing.trust.kills import kills_figure
from a3r.testing.trust.null_variants import null_figures
from a3r.testing.trust.swaps import swaps_figure

Measure: TypeAlias = Callable[[float], list[Figure]]
"""Scale of the simulation (1: as published) -> its figures."""
FIGURES: Mapping[str, Measure] = {
    "coverage": coverage_figures,
    "null-variants": null_figures,
    "invented": lambda _scale: [invented_figure()],
    "swaps": lambda scale: [swaps_figure(scale)],
    "budget": lambda scale: [budget_figure(scale)],
    "idle": lambda _scale: [idle_figure()],
    "kills": lambda scale: [kills_figure(scale)],
    "referee": referee_figures,
}
