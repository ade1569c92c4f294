"""A campaign without a result says what failed, how often and why."""

from a3r.report.no_result import NO_REPAIR, no_result, no_result_text
from a3r.report.records import DecisionRecord, Records
from a3r.report.verify import verify
from a3r.report.write import write_report
from a3r.testing.records import SyntheticCell, SyntheticStage, synthetic_goal, synthetic_records


def failed(outcomes: dict[int, str]) -> Records:
    cells = (SyntheticCell(None, 2, 0.0, (1, 2, 3), outcomes),)
    made = synthetic_records([SyntheticStage("coarse", cells)], synthetic_goal((1, 2), (None,)))
    given_up = DecisionRecord(
        stage_id=None, what=f"{NO_REPAIR}: at-1", why="nothing passed", evidence={}, at=1.0
    )
    return made.model_copy(update={"decisions": (*made.decisions, given_up)})


def test_it_counts_what_failed_and_names_the_most_frequent_reason():
    found = no_result(failed({1: "failed", 2: "failed", 3: "cancelled"}))
    assert found is not None
    assert no_result_text(found) == (
        "No run has a result: of 3 planned runs 2 failed, 1 ended otherwise or was not run. Most often (2 of 2): synthetic: failed. "
        "The client was not mended: nothing passed."
    )


def test_one_result_is_one():
    assert no_result(failed({1: "failed", 2: "failed"})) is None


def test_the_report_says_it_in_its_answer_and_verifies(tmp_path):
    folder = write_report(failed(dict.fromkeys((1, 2, 3), "failed")), tmp_path / "report")
    assert verify(folder).ok
    answer = (folder / "report.md").read_text("utf-8").split("## ")[1]
    assert "**No run has a result: of 3 planned runs 3 failed**. Most often (3 of 3)" in answer
    assert "The client was not mended: nothing passed." in answer
