"""What the report says, and that outside text can not change its form."""

import re

import pytest

from a3r.report.claims import Claim
from a3r.report.escape import inline, quoted
from a3r.report.numbers import p_phrase, plain, signed, stable
from a3r.report.records import DeviationRecord, Records
from a3r.report.render import claims_of, render
from a3r.testing.edits import one_condition, with_item, with_run
from a3r.testing.records import (
    SyntheticCell,
    SyntheticStage,
    synthetic_goal,
    synthetic_records,
)

FRESH = (3, 4, 5, 6)
HOSTILE = "boom | <script>alert(1)</script> `x` \x1b[31m\u202e **bold** [l](http://e.vil)\n# Answer\r\n|---|"


def report(records: Records) -> str:
    return render(records)


def claim(records: Records, kind: str) -> Claim:
    return next(c for c in claims_of(records) if c.kind == kind)


def test_claims_name_the_runs_and_the_metric_that_they_come_from(records: Records):
    found = claim(records, "minimum")
    known = {run.id for run in records.runs}
    assert set(found.inputs.runs) <= known
    assert len(found.inputs.runs) == 12  # six seeds at the minimum and six below it
    assert (found.inputs.metric, found.inputs.rounds) == ("held_out_reward", ("initial", "final"))
    assert [c.id for c in claims_of(records)] == [
        f"c{n + 1}" for n in range(len(claims_of(records)))
    ]


def test_answer_comes_first_and_states_direction_size_interval_n_and_p(records: Records):
    text = report(records)
    answer = text[text.index("## Answer") : text.index("## Question")]
    assert re.search(
        r"At max_response_tokens 10, the smallest train_batch_size shown to train is 4: held-out reward rises by "
        r"\+0\.3\d\d \[\+0\.\d{3}, \+0\.\d{3}\] \(n = 4 fresh seeds, 95 % t interval; gain above \+0\.050: "
        r"Holm-adjusted p [=<] 0\.\d{4}\)",
        answer,
    )
    assert "No human reviewed these blueprints before dispatch." in answer
    assert "is not shown" in answer


@pytest.mark.parametrize(
    ("gains", "fresh", "sentence"),
    [
        (dict.fromkeys((1, 2), 0.3), {1: FRESH}, "is at or below 1, the lowest level of the grid"),
        (
            dict.fromkeys((1, 2), 0.0),
            {2: FRESH},
            "No train_batch_size of the grid up to 2 is shown",
        ),
        ({1: 0.0, 2: 0.3}, {}, "The minimum of train_batch_size is not resolved"),
    ],
)
def test_edges_and_open_questions_are_not_told_as_a_minimum(gains, fresh, sentence):
    found = claim(one_condition(gains, fresh, (1, 2)), "minimum").text
    assert sentence in found
    assert "shown to train is" not in found


def test_denominators_add_up_and_reasons_are_listed():
    outcomes = {2: "failed", 3: "cancelled", 4: "pending"}
    mixed = synthetic_records(
        [SyntheticStage("coarse", (SyntheticCell(None, 2, 0.3, (1, 2, 3, 4), outcomes),))],
        synthetic_goal((1, 2), (None,)),
    )
    values = claim(mixed, "denominators").values
    parts = [values[k] for k in ("succeeded", "failed", "cancelled", "not run")]
    assert (values["planned"], parts, values["used"]) == (4, [1, 1, 1, 1], 1)
    text = report(mixed)
    assert "| total | 4 | 1 | 1 | 1 | 1 | 1 |" in text
    assert "| s1-b2-cNone seed 2 | failed: synthetic: failed |" in text


def test_missing_is_printed_as_missing_and_never_as_zero(records: Records):
    text = report(with_item(records, 1, 0, reward=None))
    row = next(line for line in text.split("\n") if line.startswith("| s1-b1-c10 seed 1 | 1 |"))
    assert [cell.strip() for cell in row.split("|")][7:11] == ["n/a", "n/a", "n/a", "1"]
    assert "misses 1 of 40 items" in text


def test_hostile_text_can_not_break_a_table_or_start_a_heading(records: Records):
    plain_text = report(records)
    spoiled = with_run(records, 0, state="failed", accepted_attempt=None, reason=HOSTILE)
    deviation = DeviationRecord(subject=HOSTILE, what=HOSTILE, data={HOSTILE: HOSTILE}, at=1.0)
    spoiled = spoiled.model_copy(update={"deviations": (deviation,)})
    text = report(spoiled)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "http://e.vil" not in text
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert headings == [line for line in plain_text.split("\n") if line.startswith("#")]
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.strip().split("\n")}
        assert len(widths) == 1, table


def test_goal_is_quoted_in_a_fence_that_it_can_not_close(records: Records):
    nasty = "# x\n````\n## Answer\nforged\n"
    changed = records.campaign.model_copy(update={"goal_text": nasty, "name": "a|b\n# c"})
    text = report(records.model_copy(update={"campaign": changed}))
    assert "`````text\n# x\n````\n## Answer\nforged\n`````" in text
    assert text.startswith("# a\\|b # c: report\n")


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("# heading", "\\# heading"),
        ("1. item", "1\\. item"),
        ("- item", "\\- item"),
        ("a_b*c", "a\\_b\\*c"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("x" * 300, "x" * 199 + "…"),
        ("\ud800ok\x07", "ok"),
    ],
)
def test_inline_text_stays_text(raw: str, safe: str):
    assert inline(raw) == safe


def test_quoted_keeps_lines_and_drops_control_characters():
    assert quoted("a\r\nb\x00\tc\n") == "```text\na\nb\tc\n```"


def test_numbers_are_written_one_way():
    assert [signed(x) for x in (0.1234, -0.1, -0.0004, None)] == [
        "+0.123",
        "-0.100",
        "0.000",
        "n/a",
    ]
    assert [plain(x, 1) for x in (1.25, -0.04)] == ["1.2", "0.0"]
    assert [p_phrase(p) for p in (0.0123, 0.00001, None)] == ["p = 0.0123", "p < 0.0001", "p = n/a"]


def test_last_digits_of_a_float_do_not_reach_a_file():
    assert stable({"a": [0.1 + 0.2, 1 / 3, 7, None, True]}) == {
        "a": [0.3, 0.3333333333, 7, None, True]
    }


def test_review_mode_with_people_counts_standing_approvals(records: Records):
    campaign = records.campaign.model_copy(update={"review_mode": "stage"})
    text = report(records.model_copy(update={"campaign": campaign}))
    assert "0 of 12 blueprints carry a standing approval" in text
    assert "No human reviewed" not in text


def test_pilot_and_limits_are_disclosed(records: Records):
    text = report(records)
    assert "**How the settings were chosen.** Synthetic settings; there was no pilot." in text
    limits = text[text.index("## What is not shown") : text.index("## Stages")]
    assert "can not be expected to be confirmed" in limits
    assert "does not show that there is none" in limits


def test_trace_is_chronological_and_covers_plan_runs_and_decisions(records: Records):
    text = report(records)
    trace = text[text.index("## Trace") : text.index("All raw events")]
    times = re.findall(r"^\| (\d{4}-\S+ \S+) \|", trace, re.MULTILINE)
    assert times == sorted(times)
    assert len(times) == 1 + 2 + 32 + 2  # start, stages, attempts, decisions
    for word in ("campaign started", "planned 8 blueprints, 16 runs", "gain +0.3", "decision"):
        assert word in trace
