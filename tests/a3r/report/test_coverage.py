"""Every demand of the goal gets a line, and what it cost is counted without guessing."""

from typing import Any

import pytest

from a3r.report.costs import costs
from a3r.report.coverage import READING, Covered, coverage
from a3r.report.records import CallRecord, DecisionRecord, Records, RevisionRecord
from a3r.report.render import claims_of, render
from a3r.testing.edits import one_condition, with_run


def covered(records: Records, **goal: Any) -> list[Covered]:
    spec = {**records.campaign.goal_spec, **goal}
    campaign = records.campaign.model_copy(update={"goal_spec": spec})
    changed = records.model_copy(update={"campaign": campaign})
    return coverage(changed, claims_of(changed), costs(changed))


def call(number: int, **changes: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "id": f"plan/1#{number}",
        "purpose": "plan",
        "model": "some/model",
        "request_hash": "h",
        "state": "settled",
        "reserved_usd": 0.5,
        "reserved_tokens": 4000,
        "cost_usd": 0.01,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "at": 1.0,
    }
    return CallRecord(**{**fields, **changes})


def test_each_question_is_answered_in_part_or_not_with_its_claim(records: Records):
    found = covered(records)
    assert [(c.state, c.claims) for c in found] == [
        ("answered", ("c1",)),
        ("answered", ("c2",)),
        ("not answered", ("c3",)),
    ]
    (edge,) = covered(one_condition(dict.fromkeys((1, 2), 0.3), {1: (3, 4, 5, 6)}, (1, 2)))
    assert (edge.state, edge.why) == ("answered in part", "censored low")
    (open_one,) = covered(one_condition({1: 0.0, 2: 0.3}, {}, (1, 2)))
    assert open_one.state == "not answered"


def test_settings_are_compared_with_every_blueprint(records: Records):
    document = {**records.blueprints[0].document, "fixed": {"max_turns": 4}}
    first = records.blueprints[0].model_copy(update={"document": document})
    odd = records.model_copy(update={"blueprints": (first, *records.blueprints[1:])})
    kept = covered(records, settings={"max_turns": 3})[3]
    assert (kept.state, kept.why) == ("kept", "in all 12 blueprints, before anything ran")
    broken = covered(odd, settings={"max_turns": 3})[3]
    assert (broken.state, broken.why) == (
        "not kept",
        f"blueprint {records.blueprints[0].name} has another value",
    )


def test_demands_in_words_are_said_to_be_unchecked(records: Records):
    found = covered(records, constraints=["PPO epochs 1"])[3]
    assert (found.asked, found.state) == ("PPO epochs 1", "not checked")


def test_a_demand_that_was_read_from_prose_names_its_keys(records: Records):
    sources = [
        {"key": "settings.steps", "quote": "Max steps: 8"},
        {"key": "model", "quote": "elsewhere"},
    ]
    read = DecisionRecord(
        stage_id=None, what=READING, why="", evidence={"sources": sources}, at=1.0
    )
    changed = records.model_copy(update={"decisions": (read,)})
    first, second = covered(changed, constraints=["max  steps: 8, no more", "Be frugal"])[3:5]
    assert first.why.startswith("read as settings.steps; ")
    assert "no rule reads it" in second.why


def test_limits_are_compared_with_what_was_used(records: Records):
    budget = {"max_runs": 32, "max_stages": 1, "llm_usd": None, "gpu_hours": 1, "strange": 5}
    found = covered(records, budget=budget)[3:]
    assert [(c.asked, c.state, c.why) for c in found] == [
        ("at most 32 planned runs", "kept", "32 used"),
        ("at most 1 stages", "not kept", "2 used"),
        ("at most 1 GPU-hours", "kept", "0 used"),
    ]


def test_an_unknown_part_makes_a_sum_unknown_and_never_zero(records: Records):
    assert costs(records).cpu_min is None
    attempt = records.runs[0].attempts[0].model_copy(
        update={"placement": {"gpus": ["0", "1"]}, "finished_at": None}
    )  # fmt: skip
    odd = with_run(records, 0, attempts=(attempt,))
    assert (costs(odd).gpu_hours, costs(odd).attempt_min) == (None, None)
    whole = attempt.model_copy(update={"finished_at": attempt.started_at + 1800.0})
    assert costs(with_run(records, 0, attempts=(whole,))).gpu_hours == pytest.approx(1.0)


def test_failed_attempts_cost_and_are_told_apart(records: Records):
    failed = with_run(records, 0, state="failed", accepted_attempt=None)
    assert costs(failed).wasted_min == pytest.approx(0.5)
    assert costs(failed).attempt_min == pytest.approx(16.0)


def test_a_call_that_nobody_settled_counts_at_its_reserve(records: Records):
    lost = call(2, state="lost", cost_usd=None, prompt_tokens=None, completion_tokens=None)
    found = costs(records.model_copy(update={"calls": (call(1), lost, call(3, error="refused"))}))
    assert (found.llm_calls, found.llm_tokens, found.llm_usd) == (3, 4240, pytest.approx(0.52))
    assert (found.purposes[0].name, found.purposes[0].failed) == ("plan", 1)


def test_revisions_are_printed_with_their_diff_and_the_attempts_that_ran_them(records: Records):
    blueprint = records.blueprints[0]
    revision = RevisionRecord(
        blueprint_id=blueprint.id,
        ordinal=1,
        tree_hash="f" * 64,
        diff="--- a/client.py\n+++ b/client.py\n@@ -1 +1 @@\n-import nothing\n+import json\n",
        reason="import_error: no module named nothing",
        state="applied",
        by="leader",
        at=2.0,
    )
    run = records.runs[0]
    attempt = run.attempts[0].model_copy(update={"revision": 1})
    repaired = with_run(records, 0, attempts=(attempt,)).model_copy(
        update={"revisions": (revision,)}
    )
    text = render(repaired)
    section = text[text.index("### Revision 1 of") : text.index("## Review")]
    assert "run by 1 attempts; client tree `ffffffffffff`" in section
    assert "```diff\n--- a/client.py" in section
    assert "+import json" in section
