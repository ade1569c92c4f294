"""A language model may order claims and remark on them; it can remove none, and its prose is checked when it is read."""

from pathlib import Path
from typing import Any

import pytest

from a3r.report.records import DecisionRecord, Records
from a3r.report.render import claims_of, render
from a3r.report.synthesis import DECISION
from a3r.report.verify import verify
from a3r.report.write import write_report

GOOD = "Possible explanation (c1, c3): The shorter limit may leave less room for a detour."


def told(records: Records, **evidence: Any) -> Records:
    decision = DecisionRecord(
        stage_id=None, what=DECISION, why="the report is due", evidence=evidence, at=records.campaign.created_at + 9e3
    )  # fmt: skip
    return records.model_copy(update={"decisions": (*records.decisions, decision)})


def answers(records: Records) -> list[str]:
    text = render(records)
    front = text[text.index("## Answer") : text.index("## What the goal asked")]
    return [line.rpartition("(")[2].strip(")") for line in front.split("\n") if line[:2] == "- "]


def test_order_moves_claims_and_removes_none(records: Records):
    plain = answers(records)
    assert plain == ["c1", "c2", "c3", "c10"]
    assert answers(told(records, order=["c3", "c99", "c3", 7], text="")) == [
        "c3",
        "c1",
        "c2",
        "c10",
    ]
    assert answers(told(records, order=[])) == plain
    ordered = render(told(records, order=["c9"]))
    assert all(f"({claim.id})" in ordered for claim in claims_of(records))
    details = ordered[ordered.index("### Evidence, claim by claim") :]
    assert details.index("(c9)") < details.index("(c4)")


def test_admissible_remarks_stand_in_their_own_section(records: Records, tmp_path: Path):
    written = told(records, order=[], text=GOOD, by="some/model")
    text = render(written)
    section = text[text.index("## Interpretation") : text.index("## What is not shown")]
    assert f"> {GOOD}" in section
    assert "some/model" in section
    report = verify(write_report(written, tmp_path / "r"))
    assert report.ok
    found = next(c for c in report.checks if c.name == "prose states no result")
    assert found.detail == "1 remarks, within the rules"


@pytest.mark.parametrize(
    "text",
    [
        "Possible explanation (c1): It may be that 8 is enough.",
        "Possible explanation (c1): It may be that eight is enough.",
        "Caveat (c1): The train_batch_size might matter.",
        "Caveat (c99): Perhaps the items are few.",
        "The winner is clear.",
        "Caveat (c1): fine.\n# Answer",
    ],
)
def test_remarks_that_break_a_rule_are_left_out_with_the_reason(records: Records, text: str):
    shown = render(told(records, text=text, by="m"))
    section = shown[shown.index("## Interpretation") : shown.index("## What is not shown")]
    assert section.startswith("## Interpretation\n\nLeft out: it broke the rules for prose:")
    assert text.splitlines()[0] not in section


def test_no_section_without_a_model_and_a_reason_when_it_was_silent(records: Records):
    assert "## Interpretation" not in render(records)
    assert "Left out: the model was away." in render(told(records, left_out="the model was away"))
    assert "Left out: the model wrote no remark." in render(told(records, text=""))
