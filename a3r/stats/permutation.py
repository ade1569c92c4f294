"""Permutation tests: no model of the noise, but at small n there are few arrangements, and p can not fall below one of them.

Exact by enumeration up to a limit, beyond it seeded Monte Carlo with (b + 1) / (m + 1) (Phipson and Smyth 2010), which is never 0.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal, TypeAlias

from a3r.stats.intervals import finite

Side: TypeAlias = Literal["greater", "less", "two-sided"]
ENUMERATED = 20_000
"""Arrangements up to which every one is looked at; C(16, 8) = 12,870 and 2**14 lie below."""
DRAWS = 9_999


@dataclass(frozen=True)
class Permutation:
    """A permutation p with what it could have been at best."""

    p: float
    exact: bool
    """Every arrangement was looked at; False: drawn."""
    arrangements: int
    """That exist."""
    attainable: float
    """Smallest p that this design can reach, whatever the data."""


def permutation_test(
    a: Sequence[float | None], b: Sequence[float | None], side: Side = "two-sided", seed: int = 0
) -> Permutation:
    """Fisher's permutation test of the difference of means; ``greater``: a's mean is greater than b's.

    Exchangeable under the null: only the labels differ. Raises ValueError when a group is empty or a value missing.
    """
    first, second = finite(a, "a"), finite(b, "b")
    arrangements = math.comb(len(first) + len(second), len(first))
    attainable = permutation_attainable_p(len(first), len(second), two_sided=side == "two-sided")
    pool = first + second
    centre = math.fsum(pool) / len(pool)
    pool = [x - centre for x in pool]
    exact = arrangements <= ENUMERATED
    sums = (
        (math.fsum(chosen) for chosen in combinations(pool, len(first)))
        if exact
        else _drawn_sums(pool, len(first), seed)
    )
    p = _share(sums, math.fsum(pool[: len(first)]), _scale(pool), side, exact=exact)
    return Permutation(p, exact, arrangements, attainable)


def sign_flip_test(
    differences: Sequence[float | None], side: Side = "two-sided", seed: int = 0
) -> Permutation:
    """Fisher's randomisation test for pairs: under the null each difference is as likely with the other sign.

    Also the one-sample test of "symmetric around 0". Raises ValueError when empty or a value is missing.
    """
    values = finite(differences, "differences")
    if not values:
        msg = "a sign-flip test needs at least one difference"
        raise ValueError(msg)
    arrangements = 2 ** len(values)
    exact = arrangements <= ENUMERATED
    sums = (
        (math.fsum(flipped) for flipped in product(*((x, -x) for x in values)))
        if exact
        else _flipped_sums(values, seed)
    )
    p = _share(sums, math.fsum(values), _scale(values), side, exact=exact)
    attainable = sign_flip_attainable_p(len(values), two_sided=side == "two-sided")
    return Permutation(p, exact, arrangements, attainable)


def permutation_attainable_p(n_a: int, n_b: int, *, two_sided: bool = False) -> float:
    """Smallest p that a permutation test of these group sizes can ever reach: 1 / C(n_a + n_b, n_a).

    Two-sided and with equal sizes twice that, because swapping the groups is as extreme. With 3 against 3 that is 0.05 one-sided: no correction for a second test can be survived.
    """
    if n_a < 1 or n_b < 1:
        msg = f"both groups need at least one value, got {n_a!r} and {n_b!r}"
        raise ValueError(msg)
    return min(1.0, (2 if two_sided and n_a == n_b else 1) / math.comb(n_a + n_b, n_a))


def sign_flip_attainable_p(n: int, *, two_sided: bool = False) -> float:
    """Smallest p that a sign-flip test of ``n`` pairs can ever reach: 2**-n, twice that if two-sided."""
    if n < 1:
        msg = f"a sign-flip test needs at least one pair, got {n!r}"
        raise ValueError(msg)
    return min(1.0, (2 if two_sided else 1) / 2**n)


def _drawn_sums(pool: list[float], size: int, seed: int) -> Iterable[float]:
    rng = random.Random(seed)  # noqa: S311 - not a secret
    for _ in range(DRAWS):
        yield math.fsum(rng.sample(pool, size))


def _flipped_sums(values: list[float], seed: int) -> Iterable[float]:
    rng = random.Random(seed)  # noqa: S311 - not a secret
    for _ in range(DRAWS):
        bits = rng.getrandbits(len(values))
        yield math.fsum(x if bits >> i & 1 else -x for i, x in enumerate(values))


def _scale(values: list[float]) -> float:
    """What counts as equal: sums of the same numbers in another order may differ in the last digits."""
    return 1e-9 * math.fsum(abs(x) for x in values)


def _share(
    sums: Iterable[float], observed: float, tolerance: float, side: Side, *, exact: bool
) -> float:
    """Share of the sums at least as extreme as the observed one, which is among them."""
    sign = -1.0 if side == "less" else 1.0
    seen = extreme = 0
    wanted = (abs(observed) if side == "two-sided" else sign * observed) - tolerance
    for total in sums:
        seen += 1
        extreme += (abs(total) if side == "two-sided" else sign * total) >= wanted
    return extreme / seen if exact else (extreme + 1) / (seen + 1)
