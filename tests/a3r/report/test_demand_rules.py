"""Demands in words that code can read are held against what was run; any other word leaves them to a reader."""

from typing import Any

import pytest

from a3r.report.costs import costs
from a3r.report.coverage import Covered, coverage
from a3r.report.records import Records
from a3r.report.render import claims_of
from a3r.testing.edits import with_run


def of(records: Records, text: str, **goal: Any) -> Covered:
    spec = {**records.campaign.goal_spec, **goal, "constraints": [text]}
    campaign = records.campaign.model_copy(update={"goal_spec": spec})
    changed = records.model_copy(update={"campaign": campaign})
    found = coverage(changed, claims_of(changed), costs(changed))
    return next(c for c in found if c.asked == text)


@pytest.mark.parametrize(
    ("text", "state", "why"),
    [
        ("At least 2 seeds per level", "kept", "seeds with a result: 2 at"),
        ("at least 3 seeds a cell.", "not kept", "seeds with a result: 2 at"),
        ("4 fresh seeds to confirm", "kept", "of 4 cells"),
        ("at most 3 seeds per level", "not kept", "seeds with a result: 6 at"),
        ("At least 32 runs", "kept", "runs with a result: 32"),
        ("at least 33 runs", "not kept", "runs with a result: 32"),
        ("Budget: at most 40 runs, 2 stages.", "kept", "planned runs: 32; stages: 2"),
        ("Budget: at most 40 runs, 1 stages.", "not kept", "stages: 2"),
        ("Max steps: 5", "kept", "steps of a run: 5"),
        ("max steps: 4", "not kept", "steps of a run: 5"),
        ("Evaluate on 40 held-out items", "kept", "held-out items of a round: 40"),
        ("Evaluate on 50 held-out items", "not kept", "held-out items of a round: 40"),
        ("Confidence: 0.95", "kept", "confidence: 0.95"),
        ("at most 1 USD for the language model", "kept", "USD for the language model: 0"),
        ("Task: calculator", "kept", "task of the blueprints: calculator"),
        ("Task: sums", "not kept", "task of the blueprints: calculator"),
        ("train_batch_size 8", "kept", "train_batch_size 8 has a result"),
        ("train_batch_size: 64", "not kept", "train_batch_size 64 has no result"),
    ],
)
def test_a_demand_that_a_rule_reads_is_held_against_what_was_run(
    records: Records, text: str, state: str, why: str
):
    documents = [
        b.document | {"evaluator": {**b.document["evaluator"], "task": "calculator"}}
        for b in records.blueprints
    ]
    blueprints = tuple(
        b.model_copy(update={"document": d})
        for b, d in zip(records.blueprints, documents, strict=True)
    )
    found = of(records.model_copy(update={"blueprints": blueprints}), text)
    assert (found.state, why in found.why) == (state, True), found


@pytest.mark.parametrize(
    "text",
    [
        "PPO epochs 1",
        "Be frugal",
        "no tool calls",
        "Max steps: 5, and never look at the test set",
        "3 seeds",
        "No second turn: the agent never sees what the tool answers.",
        "Model: a/folder/of/weights",
        "not at least 2 seeds per level",
        "at least two seeds per level",
    ],
)
def test_what_no_rule_reads_word_for_word_is_left_to_a_reader(records: Records, text: str):
    assert of(records, text).state == "not checked"


def test_a_broken_part_is_told_though_another_is_read_by_no_rule(records: Records):
    found = of(records, "Be frugal, at most 20 runs")
    assert (found.state, found.why) == ("not kept", "planned runs: 32")


def test_a_setting_is_looked_up_in_every_blueprint(records: Records):
    first, *others = records.blueprints
    fixed = [
        b.model_copy(update={"document": {**b.document, "fixed": {"group_size": n}}})
        for b, n in zip((first, *others), [8, *(4 for _ in others)], strict=True)
    ]
    odd = records.model_copy(update={"blueprints": tuple(fixed)})
    even = records.model_copy(update={"blueprints": tuple(fixed[1:])})
    goal = {"settings": {"group_size": 4}}
    assert of(odd, "group_size 4", **goal).why == "group_size in the blueprints: 8"
    runs = tuple(r for r in even.runs if r.blueprint_id != first.id)
    even = even.model_copy(update={"runs": runs})
    assert of(even, "group_size: 4.0", **goal).state == "kept"


def test_a_run_that_failed_is_no_seed(records: Records):
    failed = with_run(records, 0, state="failed", accepted_attempt=None)
    assert of(failed, "at least 2 seeds per level").state == "not kept"


def test_what_the_records_do_not_tell_is_left_to_a_reader(records: Records):
    attempt = records.runs[0].attempts[0].model_copy(
        update={"placement": {"gpus": ["0"]}, "finished_at": None}
    )  # fmt: skip
    odd = with_run(records, 0, attempts=(attempt,))
    assert of(odd, "at most 3 GPU hours").state == "not checked"
