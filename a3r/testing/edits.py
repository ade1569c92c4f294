"""Changes to SYNTHETIC records, for tests only."""

from __future__ import annotations

from typing import Any

from a3r.report.records import Records
from a3r.testing.records import SyntheticCell, SyntheticStage, synthetic_goal, synthetic_records


def one_condition(
    gains: dict[float, float],
    fresh: dict[float, tuple[int, ...]],
    levels: tuple[float, ...] = (1, 2, 4, 8),
    **options: Any,
) -> Records:
    """True gain by level; ``fresh`` names the replicated levels and their seeds."""
    coarse = SyntheticStage(
        "coarse", tuple(SyntheticCell(None, x, g, (1, 2)) for x, g in gains.items())
    )
    stages = [coarse]
    if fresh:
        cells = (SyntheticCell(None, x, gains[x], seeds) for x, seeds in fresh.items())
        stages.append(SyntheticStage("replicate", tuple(cells)))
    return synthetic_records(stages, synthetic_goal(levels, (None,)), **options)


def with_item(records: Records, round_index: int, item_index: int, **changes: Any) -> Records:
    """The records with one evaluation item changed."""
    evals = list(records.evals)
    found = evals[round_index]
    items = list(found.items)
    items[item_index] = items[item_index].model_copy(update=changes)
    evals[round_index] = found.model_copy(update={"items": tuple(items)})
    return records.model_copy(update={"evals": tuple(evals)})


def with_run(records: Records, index: int, **changes: Any) -> Records:
    """The records with one run changed."""
    runs = list(records.runs)
    runs[index] = runs[index].model_copy(update=changes)
    return records.model_copy(update={"runs": tuple(runs)})
