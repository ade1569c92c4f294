"""How often the interval of three seeds holds the truth, for named models of what a seed does.

The t interval assumes normal noise. Models that it allows must reach the goal; those that it does not are printed beside it with
what the product does about them, because a reader meets them too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from a3r.stats.intervals import mean_interval, welch_difference
from a3r.stats.modes import find_modes
from a3r.stats.threshold import LevelSample, threshold
from a3r.testing.trust.figure import Figure, percent

Draw: TypeAlias = Callable[[random.Random], float]
SEEDS = 3
CAMPAIGNS = 20_000
LOW, HIGH = 0.93, 0.97
NOISE = (0.02, 12.0)
"""What the other cells of a campaign say about noise: standard deviation and degrees of freedom."""
ITEMS = 300


@dataclass(frozen=True)
class Model:
    """What one seed's held-out reward looks like."""

    name: str
    draw: Draw
    truth: float
    """Its mean."""
    allowed: str = ""
    """Why the t interval does not fit; empty: it does."""


def _answered(share: Draw) -> Draw:
    """Reward of a run whose true share of solved items is ``share``, measured on a finite item set."""

    def draw(rng: random.Random) -> float:
        p = min(1.0, max(0.0, share(rng)))
        # a normal stands for the binomial of a few hundred items, rounded to whole items
        noise = rng.gauss(0, math.sqrt(p * (1 - p) / ITEMS))
        return min(ITEMS, max(0, round((p + noise) * ITEMS))) / ITEMS

    return draw


def _collapse(share: float) -> Draw:
    return lambda rng: rng.gauss(0.0 if rng.random() < share else 0.3, 0.02)


MODELS = (
    Model("normal", lambda rng: rng.gauss(0.3, 0.05), 0.3),
    Model(
        f"reward in 0..1, {ITEMS} items, middle", _answered(lambda rng: rng.gauss(0.5, 0.05)), 0.5
    ),
    Model(
        f"reward in 0..1, {ITEMS} items, high", _answered(lambda rng: rng.betavariate(45, 5)), 0.9
    ),
    Model(
        "mildly skewed (lognormal 0.25)", lambda rng: rng.lognormvariate(0, 0.25), math.exp(0.03125)
    ),
    Model("triangular", lambda rng: rng.triangular(0, 1, 0.5), 0.5),
    Model("uniform", lambda rng: rng.random(), 0.5, "flat: three values often lie close together"),
    Model(
        "strongly skewed (exponential)",
        lambda rng: rng.expovariate(1),
        1.0,
        "the rare large values are missing",
    ),
    Model(
        "reward at the ceiling (beta 30, 1)",
        lambda rng: rng.betavariate(30, 1),
        30 / 31,
        "skewed against the bound",
    ),
    Model("collapse of every second seed", _collapse(0.5), 0.15, "two camps"),
    Model("collapse of every fifth seed", _collapse(0.2), 0.24, "two camps"),
)


def coverage_figures(scale: float = 1.0) -> list[Figure]:
    """One figure a model, then the difference of two cells and the threshold's set; ``scale`` shrinks the simulation."""
    campaigns = max(200, int(CAMPAIGNS * scale))
    found = [_figure(model, campaigns) for model in MODELS]
    return [*found, _difference(campaigns), _threshold(max(200, campaigns // 10))]


def _figure(model: Model, campaigns: int) -> Figure:
    rng = random.Random(model.name)  # noqa: S311 - a simulation
    hits = named = 0
    for _ in range(campaigns):
        sample = [model.draw(rng) for _ in range(SEEDS)]
        hits += _holds(sample, model.truth)
        named += find_modes(sample, NOISE, smallest_gap=0.05).bimodal
    share = hits / campaigns
    name = f"interval at n = {SEEDS}: {model.name}"
    if not model.allowed:
        return Figure(name, "93 to 97 %", percent(share), _inside(share))
    note = f"not what a t interval is for ({model.allowed})"
    if "camps" in model.allowed:
        note += f"; the two camps were named in {percent(named / campaigns)} of the samples, and a report says of such a cell that its mean describes neither"
    return Figure(name, "(disclosed)", percent(share), None, note=note + ".")


def _holds(sample: list[float], truth: float) -> bool:
    found = mean_interval(sample)
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def _difference(campaigns: int) -> Figure:
    rng = random.Random("difference")  # noqa: S311 - a simulation
    hits = 0
    for _ in range(campaigns):
        a = [rng.gauss(0.4, 0.05) for _ in range(SEEDS)]
        b = [rng.gauss(0.3, 0.03) for _ in range(SEEDS)]
        found = welch_difference(a, b)
        hits += found.low is not None and found.high is not None and found.low <= 0.1 <= found.high
    share = hits / campaigns
    name = f"interval of a difference, {SEEDS} against {SEEDS}, unequal spread (Welch)"
    return Figure(name, "93 to 97 %", percent(share), _inside(share))


def _threshold(campaigns: int) -> Figure:
    rng = random.Random("threshold")  # noqa: S311 - a simulation
    hits = levels = 0
    for _ in range(campaigns):
        first = rng.randrange(8)
        samples = [
            LevelSample(2.0**k, tuple(rng.gauss(0.1 * (k >= first), 0.02) for _ in range(SEEDS)))
            for k in range(7)
        ]
        found = threshold(samples, 0.05)
        hits += found.above_possible if first == 7 else 2.0**first in found.candidates
        levels += len(found.candidates) + found.above_possible
    share = hits / campaigns
    return Figure(
        f"confidence set of a threshold, 7 levels, n = {SEEDS}",
        "at least 95 %",
        percent(share),
        share >= 0.95,
        f"{levels / campaigns:.1f} of 8 answers are left on average.",
    )


def _inside(share: float) -> bool:
    return LOW <= share <= HIGH
