"""Rows of several groups, with merged spans and two temperatures."""

import random

import pytest

from swarm.server.ports import Span, TrainRow


def made_rows(seed=2, groups=4, repeats=3):
    """Rows whose weights sum to one over the trained tokens; ids below 40."""
    rng = random.Random(seed)
    rows = []
    for group in range(groups):
        for repeat in range(repeats):
            length = rng.randint(8, 24)
            middle = rng.randint(3, length - 3)
            spans = [Span(2, middle, 1.0), Span(middle + 1, length, rng.choice((1.0, 0.7)))]
            count = sum(s.end - s.start for s in spans)
            rows.append(
                TrainRow(
                    key=f"s0.g{group}/{repeat}/0",
                    episode_id=f"e{group}.{repeat}",
                    ids=[rng.randrange(40) for _ in range(length)],
                    spans=spans,
                    logprobs=[-1.0 - rng.random() for _ in range(count)],
                    advantage=rng.uniform(-1, 1),
                    weight=0.0,
                    weights=[rng.choice((0.0, 1.0, 0.5)) for _ in range(count)],
                )
            )
    total = sum(len(row.logprobs) for row in rows)
    for row in rows:
        row.weight = 1 / total
    return rows


@pytest.fixture
def rows():
    return made_rows()
