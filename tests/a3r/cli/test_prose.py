"""A goal in prose from the command line: a real daemon, a real HTTP provider that follows a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from a3r.testing.stand_in.planner_script import careful_planner
from a3r.testing.stand_in.script import said
from a3r.testing.stand_in.server import StandIn
from a3r.testing.waiting import retry_until

PROSE = """# Small batches

Find the minimum train_batch_size from 1 to 4 that still trains the calculator agent.

# Constraints

- Model: builtin:tiny-calc.
- Max steps: 2.
"""
READING = {
    "front_matter": {
        "question": {"kind": "minimum", "factor": "train_batch_size"},
        "task": "calculator",
        "model": "builtin:tiny-calc",
        "factors": {"train_batch_size": {"range": [1, 4]}},
        "settings": {"steps": 2},
    },
    "sources": [
        {"key": "question", "quote": "Find the minimum train_batch_size from 1 to 4"},
        {"key": "task", "quote": "the calculator agent"},
        {"key": "model", "quote": "Model: builtin:tiny-calc"},
        {"key": "factors.train_batch_size", "quote": "train_batch_size from 1 to 4"},
        {"key": "settings.steps", "quote": "Max steps: 2"},
    ],
}


@pytest.fixture
def provider(monkeypatch):
    with StandIn(careful_planner({"understand": lambda _: said(READING)})) as found:
        monkeypatch.setenv("A3R_LLM", "openai/stand-in")
        monkeypatch.setenv("A3R_LLM_BASE_URL", found.url)
        monkeypatch.setenv("A3R_LLM_PRICE", "1,4")
        yield found


def test_what_check_shows_is_what_a_started_campaign_is_frozen_on(a3r, project: Path, provider):
    (project / "goal.md").write_text(PROSE, encoding="utf-8")
    found = a3r("campaign", "check", "goal.md", "--json")
    assert found.code == 0, found.err
    body = found.json
    assert body["ok"]
    assert body["reading"]["model"] == "openai/stand-in"
    assert "Max steps: 2." in body["front_matter"]
    asked = len(provider.asked)
    assert "train_batch_size" in a3r("campaign", "check", "goal.md").out
    assert len(provider.asked) == asked
    made = a3r("campaign", "start", "goal.md", "--no-watch", "--json")
    assert made.code == 0, made.err
    campaign = made.json["campaign"]["id"]

    def planned() -> bool:
        return a3r("campaign", "show", campaign, "--json").json["state"] == "awaiting_review"

    retry_until(planned, 60)
    shown = a3r("campaign", "show", campaign, "--json").json
    assert shown["goal_spec"]["factors"]["train_batch_size"]["levels"] == [1, 2, 4]
    assert shown["goal_spec"]["planner"] == "llm"
    assert [d["what"] for d in shown["decisions"]][:2] == [
        "understand the goal",
        "plan stage 1: explore",
    ]
    purposes = {r.messages[0].content.split("\n")[0] for r in provider.asked[asked:]}
    assert purposes == {"# Task: plan"}


def test_without_a_model_the_missing_keys_are_said(a3r, project: Path):
    (project / "goal.md").write_text(PROSE, encoding="utf-8")
    found = a3r("campaign", "check", "goal.md", "--json")
    assert found.code == 2
    assert len(found.json["mistakes"]) == 4
    started = a3r("campaign", "start", "goal.md", "--no-watch")
    assert started.code == 2
    assert "A3R_LLM" in started.err


GOAL = """---
name: a rate
question: {kind: best, factor: learning_rate}
task: calculator
model: builtin:tiny-calc
factors: {learning_rate: {levels: [1e-3, 2e-3]}}
metric: {name: held_out_reward, direction: maximize, items: 20}
---
Prose.
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("task:", "planner: llm\ntask:", "`planner: llm` has a language model plan each stage"),
        ("task: calculator", "task: my own\ncode: base", "a language model must write its client"),
    ],
)
def test_a_goal_that_needs_a_model_is_refused_before_it_is_filed(
    a3r, project: Path, old, new, told
):
    (project / "base").mkdir()
    (project / "goal.md").write_text(GOAL, encoding="utf-8")
    assert a3r("campaign", "check", "goal.md").code == 0
    (project / "goal.md").write_text(GOAL.replace(old, new), encoding="utf-8")
    found = a3r("campaign", "check", "goal.md", "--json")
    assert (found.code, len(found.json["mistakes"])) == (2, 1)
    assert told in found.json["mistakes"][0]
    assert found.json["understood"]
    started = a3r("campaign", "start", "goal.md", "--no-watch", "--json")
    assert started.code == 2
    assert told in started.json["error"]["message"]
    assert "A3R_LLM" in started.json["error"]["hint"]
