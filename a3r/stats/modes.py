"""Outcomes in two camps: some seeds collapse, others train. A mean of both describes no run, so the camps are named.

Rule: the values are split at their largest gap, and the gap is called a real one when it exceeds what normal noise shows in one of a
hundred samples of that size. The scale is the noise of other cells where there is one (then three seeds suffice), else the spread
inside the two camps (then five are needed, and many to see it reliably: at n = 3 two equal values and a far one are common by chance).
The critical values are simulated (``tests/a3r/stats/test_modes.py`` does it again). Hartigan's dip test has no power at these n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from a3r.stats.distributions import normal_quantile, t_quantile
from a3r.stats.intervals import finite, mean
from a3r.stats.noise import robust_sd

# 99th percentiles over 400,000 normal samples of size n: the largest gap in standard deviations ...
_KNOWN_NOISE = {2: 3.643, 3: 3.178, 4: 2.90, 5: 2.70, 6: 2.57, 7: 2.46, 8: 2.38, 9: 2.33, 10: 2.28, 11: 2.24, 12: 2.19}  # fmt: skip
# ... and in pooled standard deviations of the two camps that it separates.
_OWN_NOISE = {5: 13.5, 6: 8.95, 7: 6.99, 8: 5.78, 9: 5.01, 10: 4.48, 11: 4.09, 12: 3.75}
_LARGEST = 12


@dataclass(frozen=True)
class Modes:
    """The two camps of a sample, whether or not they are real."""

    bimodal: bool
    """The gap is larger than noise explains and than the smallest that matters."""
    testable: bool
    """False: too few values, and no noise of other cells; then ``bimodal`` is False and means nothing."""
    low: tuple[float, ...]
    """Values below the largest gap, ascending; empty for fewer than two values."""
    high: tuple[float, ...]
    gap: float
    scale: float | None
    """Standard deviation that the gap is measured in."""
    critical: float | None
    """In units of ``scale``."""


def find_modes(
    values: Sequence[float | None],
    noise: tuple[float, float] | None = None,
    smallest_gap: float = 0.0,
) -> Modes:
    """Split at the largest gap and judge it.

    ``noise`` is (standard deviation, degrees of freedom) between seeds of other cells, as ``a3r.stats.noise.robust_sd`` gives it; a gap
    of at most ``smallest_gap`` (the smallest effect that matters) is never called real. Raises ValueError on missing values.
    """
    ordered = sorted(finite(values))
    if len(ordered) < 2:
        return Modes(False, False, (), tuple(ordered), 0.0, None, None)
    cut = max(range(1, len(ordered)), key=lambda i: ordered[i] - ordered[i - 1])
    low, high = tuple(ordered[:cut]), tuple(ordered[cut:])
    gap = high[0] - low[-1]
    scale, critical = _yardstick(low, high, noise)
    if scale is None or critical is None:
        return Modes(False, False, low, high, gap, None, None)
    real = gap > smallest_gap and gap > scale * critical
    return Modes(real, True, low, high, gap, scale, critical)


def noise_of_others(
    samples: Sequence[Sequence[float | None]], position: int
) -> tuple[float, float] | None:
    """The noise that judges the sample at ``position``: robust, from every other sample; None when they have too little.

    Fewer than four degrees of freedom say too little about noise to call anything a collapse.
    """
    others = [s for i, s in enumerate(samples) if i != position]
    if sum(max(0, len(s) - 1) for s in others) < 4:
        return None
    return robust_sd(others)


def _yardstick(
    low: tuple[float, ...], high: tuple[float, ...], noise: tuple[float, float] | None
) -> tuple[float | None, float | None]:
    n = len(low) + len(high)
    if noise is not None and noise[0] > 0:
        sd, df = noise
        # An estimated scale is less certain than a known one: widened as t is against the normal at the same tail.
        return sd, _KNOWN_NOISE[min(n, _LARGEST)] * t_quantile(0.995, df) / normal_quantile(0.995)
    critical = _OWN_NOISE.get(min(n, _LARGEST))
    if critical is None:
        return None, None
    squares = sum(math.fsum((x - mean(camp)) ** 2 for x in camp) for camp in (low, high))
    within = math.sqrt(squares / (n - 2))
    return (within, critical) if within > 0 else (None, None)
