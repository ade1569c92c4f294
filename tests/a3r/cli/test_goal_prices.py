"""A goal is told before it starts where USD can not be bounded for a language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from a3r.cli.goal_prices import price_findings
from a3r.core.llm import Price
from a3r.testing.scripted_model import ScriptedModel

PRICE = Price(prompt_usd=1e-6, completion_usd=4e-6)
FREE = Price(prompt_usd=0.0, completion_usd=0.0)


def model(name: str, price: Price | None) -> ScriptedModel:
    return ScriptedModel([], price=price, name=name)


@pytest.mark.parametrize("price", [PRICE, FREE])
def test_nothing_is_said_of_models_with_a_price(price):
    found = price_findings(5.0, model("a/b", price), [model("c/d", PRICE)])
    assert (found.mistakes, found.warnings) == ([], [])


def test_a_limit_in_usd_is_refused_for_a_first_model_without_a_price():
    found = price_findings(5.0, model("a/b", None), [model("c/d", PRICE)])
    assert "budget.llm_usd is 5" in found.mistakes[0]
    assert "A3R_LLM_PRICE" in found.mistakes[0]


def test_without_a_limit_it_is_said_who_is_asked_instead():
    found = price_findings(None, model("a/b", None), [model("x/y", None), model("c/d", PRICE)])
    assert found.mistakes == []
    assert len(found.warnings) == 2
    assert "'a/b' is not known" in found.warnings[0]
    assert "'c/d' is asked in its place" in found.warnings[0]


def test_without_a_priced_fallback_the_campaign_would_be_blocked():
    found = price_findings(None, model("a/b", None))
    assert "will be blocked" in found.warnings[0]


def test_a_fallback_without_a_price_is_never_asked():
    found = price_findings(5.0, model("a/b", PRICE), [model("c/d", None)])
    assert found.mistakes == []
    assert "'c/d' is not known" in found.warnings[0]


@pytest.mark.parametrize("command", ["check", "start"])
def test_check_and_start_refuse_a_limit_that_can_not_be_kept(
    a3r, project: Path, goal: Path, command: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("A3R_LLM", "openai/own")
    monkeypatch.setenv("A3R_LLM_BASE_URL", "http://127.0.0.1:9/v1")
    text = goal.read_text("utf-8").replace("pilot:", "budget: {llm_usd: 2}\npilot:")
    assert "llm_usd" in text
    goal.write_text(text, "utf-8")
    found = a3r("campaign", command, str(goal), "--json")
    assert found.code == 2, found.err
    assert "A3R_LLM_PRICE" in found.json["error"]["message"]
    assert not (project / ".a3r" / "daemon").exists()


def test_check_warns_of_a_model_without_a_price(a3r, goal: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("A3R_LLM", "openai/own")
    monkeypatch.setenv("A3R_LLM_BASE_URL", "http://127.0.0.1:9/v1")
    text = goal.read_text("utf-8").replace("pilot:", "planner: llm\npilot:")
    goal.write_text(text, "utf-8")
    found = a3r("campaign", "check", str(goal), "--json")
    assert found.code == 0, found.err
    assert any("'openai/own' is not known" in w for w in found.json["warnings"])
