"""Two conditions compared seed by seed: what both share through the seed cancels, so fewer seeds show the same effect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from a3r.stats.distributions import t_quantile, t_tail
from a3r.stats.intervals import finite, mean, sample_sd
from a3r.stats.tests import t_test_greater, t_test_less


@dataclass(frozen=True)
class Paired:
    """mean(a - b) over the seeds that both have; bounds and p are None when fewer than two pairs exist.

    Without spread between the differences the bounds are None and every p is 1: nothing measures the distance.
    """

    low: float | None
    difference: float | None
    """None without a pair."""
    high: float | None
    p_greater: float | None
    p_less: float | None
    p_two_sided: float | None
    seeds: tuple[int, ...]
    """Of the pairs, ascending."""
    differences: tuple[float, ...]
    """a - b in the order of ``seeds``."""
    alone: tuple[int, ...]
    """Seeds that only one condition has: left out, to be disclosed."""
    sd: float | None
    """Of the differences."""

    @property
    def n(self) -> int:
        """Pairs."""
        return len(self.seeds)


def paired_difference(
    a: Mapping[int, float | None], b: Mapping[int, float | None], confidence: float = 0.95
) -> Paired:
    """Student's t of the differences by seed (Student 1908). ValueError on a missing or infinite value."""
    if not 0 < confidence < 1:
        msg = f"confidence must be between 0 and 1, got {confidence!r}"
        raise ValueError(msg)
    seeds = tuple(sorted(set(a) & set(b)))
    first, second = finite([a[s] for s in seeds], "a"), finite([b[s] for s in seeds], "b")
    differences = tuple(x - y for x, y in zip(first, second, strict=True))
    alone = tuple(sorted(set(a) ^ set(b)))
    centre = mean(differences) if differences else None
    sd = sample_sd(differences)
    if centre is None or sd is None:
        return Paired(None, centre, None, None, None, None, seeds, differences, alone, sd)
    greater, less = t_test_greater(differences, 0.0), t_test_less(differences, 0.0)
    if sd == 0.0:
        return Paired(None, centre, None, greater, less, 1.0, seeds, differences, alone, sd)
    df, error = len(seeds) - 1, sd / math.sqrt(len(seeds))
    half = t_quantile(0.5 + confidence / 2, df) * error
    both = min(1.0, 2 * t_tail(abs(centre) / error, df))
    return Paired(
        centre - half, centre, centre + half, greater, less, both, seeds, differences, alone, sd
    )


def correlation(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Pearson's correlation over the common seeds: above 0.5 pairing is worth it. None for fewer than three or without spread."""
    seeds = sorted(set(a) & set(b))
    if len(seeds) < 3:
        return None
    first, second = finite([a[s] for s in seeds]), finite([b[s] for s in seeds])
    centre_a, centre_b = mean(first), mean(second)
    squares_a = math.fsum((x - centre_a) ** 2 for x in first)
    squares_b = math.fsum((y - centre_b) ** 2 for y in second)
    if squares_a == 0.0 or squares_b == 0.0:
        return None
    shared = math.fsum((x - centre_a) * (y - centre_b) for x, y in zip(first, second, strict=True))
    return max(-1.0, min(1.0, shared / math.sqrt(squares_a * squares_b)))
