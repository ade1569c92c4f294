"""The language model from the settings to the screen: wiring, the doctor, waiting and costs, and a daemon that uses one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from a3r.adapters.litellm_model import LitellmModel
from a3r.cli.campaign_screen import job_text, llm_text
from a3r.cli.daemon.language_model import models_of, price_of
from a3r.cli.doctor_checks import language_model
from a3r.cli.progress import event_text
from a3r.core.errors import WorkspaceError
from a3r.core.settings import Settings
from a3r.testing.stand_in.script import Answer
from a3r.testing.stand_in.server import StandIn
from a3r.testing.waiting import retry_until

NO_LLM = ("A3R_LLM", "A3R_LLM_FALLBACKS", "A3R_LLM_BASE_URL", "A3R_LLM_PRICE", "OPENAI_API_KEY")


@pytest.fixture(autouse=True)
def no_model_of_the_person_who_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NO_LLM:
        monkeypatch.delenv(name, raising=False)


def test_without_a_setting_there_is_no_model() -> None:
    assert models_of(Settings(), {}) == (None, ())


def test_fallbacks_come_in_order_and_address_and_price_are_the_first_ones_providers() -> None:
    settings = Settings(
        llm="openai/mine",
        llm_fallbacks="anthropic/claude-sonnet-4-5, openai/other",
        llm_base_url="http://127.0.0.1:1/v1",
        llm_price="3, 15",
    )
    first, rest = models_of(settings, {})
    assert first is not None
    assert [model.name for model in rest] == ["anthropic/claude-sonnet-4-5", "openai/other"]
    assert first.price() == rest[1].price() == price_of("3,15")
    known = LitellmModel("anthropic/claude-sonnet-4-5").price()
    assert rest[0].price() == known is not None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(llm="gpt-4o"), "'gpt-4o' is no language model"),
        (Settings(llm="openai/x", llm_fallbacks="nothing"), "'nothing' is no language model"),
        (Settings(llm="openai/x", llm_price="3"), "'llm_price' cannot be '3'"),
        (Settings(llm="openai/x", llm_price="3,-1"), "'llm_price' cannot be"),
        (Settings(llm="openai/x", llm_price="a,b"), "'llm_price' cannot be"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings: Settings, words: str) -> None:
    with pytest.raises(WorkspaceError, match=words):
        models_of(settings, {})


def test_a_price_is_in_usd_a_million_tokens() -> None:
    price = price_of("3,15")
    assert price is not None
    assert (price.prompt_usd, price.completion_usd) == (3e-6, 15e-6)
    assert price_of("") is None


@pytest.mark.parametrize(
    ("env", "level", "words"),
    [
        ({}, "ok", "none is set"),
        ({"A3R_LLM": "openai/gpt-4o"}, "fail", "no key is set"),
        ({"A3R_LLM": "openai/gpt-4o", "OPENAI_API_KEY": "k"}, "ok", "2.5 and 10 USD a million"),
        ({"A3R_LLM": "openai/unheard-of", "OPENAI_API_KEY": "k"}, "fail", "price is not known"),
        (
            {"A3R_LLM": "openai/x", "A3R_LLM_BASE_URL": "http://h/v1", "A3R_LLM_PRICE": "0,0"},
            "ok",
            "0 and 0 USD",
        ),
    ],
)
def test_the_doctor_looks_at_key_and_price_without_a_call(
    env: dict[str, str],
    level: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    project: Path,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = language_model()
    assert found.level == level
    assert words in found.detail
    assert bool(found.hint) == (level == "fail")


def test_waiting_is_told_with_its_reason_and_the_next_try() -> None:
    job: dict[str, Any] = {"kind": "write_client", "subject": "calc", "detail": "rate limited"}
    job |= {"state": "waiting", "waiting_since": 0.0, "not_before": 60.0}
    text = job_text(job)
    assert text.startswith("write client (calc) waits for the language model since ")
    assert ": rate limited; next try " in text
    assert job_text({**job, "state": "running"}) == "write client (calc) is being done"
    assert job_text({**job, "state": "failed"}) == "write client (calc) failed: rate limited"
    event = {"kind": "job_waiting", "data": {**job}, "at": 0.0}
    assert "write client waits for the language model: rate limited" in str(event_text(event))


def test_costs_are_told_with_their_limit() -> None:
    costs: dict[str, Any] = {"usd": 0.0123, "tokens": 4321, "calls": 1, "limit_usd": 5.0}
    assert llm_text(costs) == "0.0123 of 5 USD, 4,321 tokens, 1 call"
    assert llm_text({**costs, "limit_usd": None, "calls": 2}).startswith("0.0123 USD")
    assert llm_text({**costs, "calls": 0}) == ""


@pytest.fixture
def provider() -> Iterator[StandIn]:
    """A provider that is over its limit for an hour."""
    with StandIn(lambda _: Answer(status=429, error="slow down", retry_after_s=3600)) as server:
        yield server


@pytest.mark.long
def test_a_campaign_waits_for_its_model_in_sight_and_a_resume_tries_at_once(
    a3r: Any, workspace: Any, provider: StandIn, monkeypatch: pytest.MonkeyPatch, goal: Path
) -> None:
    monkeypatch.setenv("A3R_LLM", "openai/stand-in")
    monkeypatch.setenv("A3R_LLM_BASE_URL", provider.url)
    monkeypatch.setenv("A3R_LLM_PRICE", "1,4")
    text = goal.read_text("utf-8").replace("pilot:", "planner: llm\npilot:")
    goal.write_text(text, "utf-8")
    started = a3r("campaign", "start", str(goal), "--review", "none", "--no-watch", "--json")
    campaign = started.json["campaign"]["id"]

    def job(state: str) -> dict[str, Any] | None:
        body = a3r("campaign", "show", campaign, "--json").json
        return next((j for j in body["jobs"] if j["state"] == state), None)

    waiting = retry_until(lambda: job("waiting"), 60)
    assert "rate limited: slow down" in waiting["detail"]
    assert "waits for the language model since" in a3r("campaign", "show", campaign).out
    provider.script = lambda _: Answer(status=401, error="which key?")
    a3r("campaign", "resume", campaign)
    failed = retry_until(lambda: job("failed"), 60)
    assert "which key?" in failed["detail"]
    body = retry_until(
        lambda: (b := a3r("campaign", "show", campaign, "--json").json)["state"] == "blocked" and b,
        60,
    )
    assert "the language model can not be asked" in body["failure"]
    assert body["llm"]["calls"] == 0, "nothing was billed"
    assert len(provider.asked) == 2, "nobody asked in between"
    assert workspace.database.exists()
