"""The campaign's one family of tests, and how its error is shared among stages that confirm.

Within a stage: Holm over every test that the stage planned, both directions and equivalence alike; a test without enough results
counts as p = 1. Between stages: what a later stage tests depends on what earlier ones showed, so one correction over all of them at
the end would not hold. Each confirming stage has its own part of alpha instead, fixed beforehand: two thirds for the first, two
thirds of what is left for each further one (alpha spending; the parts add up to at most one, whatever the stages choose to test,
because fresh seeds owe nothing to earlier ones). Adjusted p-values are on the scale of the whole alpha: a test holds when its own is
below ``1 - confidence``.
"""

from __future__ import annotations

from collections.abc import Sequence

from a3r.stats.tests import holm

FIRST = 2 / 3
"""Part of alpha for the first stage that confirms, and of the rest for each further one."""


def share(number: int) -> float:
    """Part of alpha of the ``number``-th confirming stage, from 1."""
    return FIRST * (1 - FIRST) ** (number - 1)


def adjusted(tests: Sequence[tuple[int, float | None]]) -> list[float | None]:
    """Adjusted p-values of (ordinal of the stage that planned it, raw p), in the order given; None stays None."""
    out: list[float | None] = [None] * len(tests)
    for number, stage in enumerate(sorted({stage for stage, _ in tests}), start=1):
        places = [i for i, (own, _) in enumerate(tests) if own == stage]
        raw = [tests[i][1] for i in places]
        found = holm([1.0 if p is None else p for p in raw])
        for i, p, value in zip(places, raw, found, strict=True):
            out[i] = None if p is None else min(1.0, value / share(number))
    return out
