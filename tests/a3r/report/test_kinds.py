"""Every kind of question has a whole report: both faces, figures, coverage, limits, verified."""

from pathlib import Path
from typing import Any

import pytest

from a3r.report.records import Records
from a3r.report.render import claims_of, render
from a3r.report.verify import verify
from a3r.report.write import write_report
from a3r.testing.records import SyntheticCell, SyntheticStage, synthetic_goal, synthetic_records

FRESH = (3, 4, 5, 6)


def study(
    gains: dict[tuple[Any, Any], float], smallest_effect: float | None = 0.1, **question: Any
) -> Records:
    """Two coarse seeds and four fresh ones in each (condition, level)."""
    conditions = list(dict.fromkeys(c for c, _ in gains))
    levels = list(dict.fromkeys(level for _, level in gains))
    goal = synthetic_goal(levels, conditions, **question)
    goal["smallest_effect"] = smallest_effect
    stages = [
        SyntheticStage(kind, tuple(SyntheticCell(c, x, g, seeds) for (c, x), g in gains.items()))
        for kind, seeds in (("coarse", (1, 2)), ("replicate", FRESH))
    ]
    return synthetic_records(stages, goal)


KINDS = {
    "best": study({(None, "low"): 0.0, (None, "high|er"): 0.3, (None, "mid"): 0.1}, kind="best"),
    "comparison": study({(None, 1): 0.0, (None, 2): 0.3, (None, 4): 0.0}, kind="comparison"),
    "interaction": study(
        {("a", 1): 0.0, ("a", 2): 0.3, ("b_", 1): 0.0, ("b_", 2): 0.0}, kind="interaction"
    ),
    "nothing to compare": study({(None, 1): 0.0}, None, kind="best"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_answered_covered_drawn_and_verified(kind: str, tmp_path: Path):
    records = KINDS[kind]
    folder = write_report(records, tmp_path / "r")
    report = verify(folder)
    assert report.ok, report.checks[-1]
    text = render(records)
    assert "figures/effects.svg" in text
    front = text[text.index("## Answer") : text.index("## What the goal asked")]
    answers = [c for c in claims_of(records) if c.kind == kind]
    for claim in answers:
        assert f"({claim.id})" in front
    assert all(f"({c.id})" in text for c in claims_of(records))
    covered = text[text.index("## What the goal asked") : text.index("## Question")]
    assert all(claim.id in covered for claim in answers)


def test_differences_are_a_table_with_pairs_interval_and_adjusted_p(tmp_path: Path):
    text = render(KINDS["comparison"])
    assert "| all | 2 minus 1 | 4 / 4 | +0." in text
    row = next(x for x in text.split("\n") if x.startswith("| all | 2 minus 1"))
    assert row.endswith("| higher |")
    crossed = render(KINDS["interaction"])
    assert "| b\\_ minus a | of 2 minus 1 | 4 / 4 |" in crossed


def test_levels_that_are_words_stay_words_in_markdown():
    text = render(KINDS["best"])
    assert "high\\|er" in text
    assert "high|er" not in text.replace("high\\|er", "")


def test_limits_of_a_comparison_name_what_equality_needs():
    assert "so equality was not tested" in render(KINDS["nothing to compare"])
    assert "so equality was not tested" not in render(KINDS["best"])
    assert "does not mean shown to be equal" in render(KINDS["best"])
