"""The noise floor and the located threshold, as sentences of the report."""

from a3r.report.claims import Claim
from a3r.report.records import Records
from a3r.report.render import claims_of
from a3r.testing.records import (
    SyntheticCell,
    SyntheticStage,
    synthetic_records,
    two_condition_stages,
)


def of_kind(records: Records, kind: str) -> list[Claim]:
    return [claim for claim in claims_of(records) if claim.kind == kind]


def test_noise_floor_says_what_chance_alone_explains():
    (claim,) = of_kind(synthetic_records(two_condition_stages()), "noise")
    floor = claim.values["between_seeds"]
    assert floor["low"] < floor["sd"] < floor["high"]
    assert floor["df"] == 24  # six seeds in four cells, two in four others
    assert claim.values["explained_by_chance"] > floor["sd"]
    assert "standard deviation of 0.0" in claim.text


def test_without_a_repeated_cell_there_is_no_noise_floor_to_speak_of():
    alone = SyntheticStage(
        "coarse", (SyntheticCell(10, 1, 0.0, (1,)), SyntheticCell(10, 8, 0.3, (1,)))
    )
    records = synthetic_records([alone])
    assert of_kind(records, "noise") == []
    assert of_kind(records, "threshold") == []


def test_threshold_of_a_clear_step_is_left_with_one_level():
    first = of_kind(synthetic_records(two_condition_stages(), spread=0.001), "threshold")[0]
    assert (first.values["estimate"], first.values["candidates"]) == (4.0, [4.0])
    assert "first exceeds +0.050 at 4" in first.text
    assert "leaves 4 (" in first.text


def test_a_threshold_at_the_edge_is_said_to_be_open():
    cells = tuple(SyntheticCell(10, level, 0.0, (1, 2)) for level in (1, 8))
    fresh = tuple(SyntheticCell(10, level, 0.0, (3, 4, 5, 6)) for level in (1, 8))
    records = synthetic_records(
        [SyntheticStage("coarse", cells), SyntheticStage("replicate", fresh)], spread=0.001
    )
    (claim,) = of_kind(records, "threshold")
    assert claim.values["above_possible"]
    assert "nowhere exceeds +0.050" in claim.text
    assert "leaves none of them (" in claim.text
