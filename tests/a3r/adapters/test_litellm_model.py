"""litellm itself, over real HTTP, against a provider that follows a script."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from a3r.adapters.litellm_errors import retry_after_s
from a3r.adapters.litellm_model import (
    LitellmModel,
    close_clients,
    known_price,
    library,
    missing_keys,
)
from a3r.core.errors import ModelRefused, ModelUnavailable, ReplyInvalid
from a3r.core.llm import ModelMessage, ModelRequest, Price, ToolCall, ToolSpec
from a3r.leader.llm.desk import Desk
from a3r.leader.llm.memory_journal import MemoryJournal
from a3r.testing.stand_in.moods import MOODS, Failing, never_right
from a3r.testing.stand_in.script import Answer, Script, in_turn, said, used
from a3r.testing.stand_in.server import StandIn

PRICE = Price(prompt_usd=1e-6, completion_usd=2e-6)
HELLO = ModelRequest(messages=(ModelMessage(role="user", content="hello"),), max_tokens=50)
Connect = Callable[..., LitellmModel]


class Word(BaseModel):
    word: str


@pytest.fixture(scope="module", autouse=True)
def no_open_connections() -> Iterator[None]:
    yield
    close_clients()


@pytest.fixture
def provider() -> Iterator[Callable[[Script], StandIn]]:
    running: list[StandIn] = []

    def start(script: Script) -> StandIn:
        running.append(StandIn(script).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__(None, None, None)


def _model(server: StandIn, **more: Any) -> LitellmModel:
    given = {"api_key": "sk-test", "price": PRICE, "timeout_s": 30.0, **more}
    return LitellmModel("openai/stand-in", base_url=server.url, **given)


def test_a_reply_comes_back_with_what_it_took(provider: Any) -> None:
    server = provider(lambda _: said("hi"))
    reply = _model(server).complete(HELLO)
    assert (reply.text, reply.finish_reason, reply.model) == ("hi", "stop", "openai/stand-in")
    assert reply.prompt_tokens
    assert reply.completion_tokens == 1
    assert server.asked[0].messages == HELLO.messages
    assert server.asked[0].max_tokens == 50


def test_a_conversation_with_tools_arrives_as_it_was_sent(provider: Any) -> None:
    call = ToolCall(id="c1", name="count", arguments='{"of": "sheep"}')
    messages = (
        ModelMessage(role="system", content="Be brief."),
        ModelMessage(role="user", content="How many?"),
        ModelMessage(role="assistant", tool_calls=(call,)),
        ModelMessage(role="tool", content="12", tool_call_id="c1"),
    )
    spec = ToolSpec(name="count", description="Count.", parameters={"type": "object"})
    server = provider(in_turn(said("never"), used("count", {"of": "goats"})))
    reply = _model(server).complete(ModelRequest(messages=messages, tools=(spec,)))
    assert reply.tool_calls[0].arguments == '{"of": "goats"}'
    assert reply.finish_reason == "tool_calls"
    (asked,) = server.asked
    assert (asked.messages, asked.tools) == (messages, (spec,))


@pytest.mark.parametrize(
    ("answer", "words", "details"),
    [
        (
            Answer(status=429, error="slow down", retry_after_s=7),
            "rate limited: slow down",
            (7.0, False),
        ),
        (Answer(status=500, error="oops"), "status 500.*oops", (None, False)),
        (Answer(status=503), "status 503", (None, False)),
        (Answer(status=529, error="overloaded"), "status 529", (None, False)),
        (Answer(status=504), "no answer in time", (None, True)),
        (Answer(status=0), "not available", (None, True)),
    ],
)
def test_what_passes_is_worth_another_try(
    provider: Any, answer: Answer, words: str, details: tuple[float | None, bool]
) -> None:
    server = provider(lambda _: answer)
    with pytest.raises(ModelUnavailable, match=words) as caught:
        _model(server).complete(HELLO)
    told = caught.value.details
    assert (told["retry_after_s"], told["maybe_billed"]) == details
    assert len(server.asked) == 1, "litellm's own retries are off"


@pytest.mark.parametrize(
    ("answer", "words", "hint"),
    [
        (Answer(status=401, error="bad key sk-abcdefgh12345678"), r"bad key sk-\*\*\*", "key"),
        (Answer(status=402, error="pay first"), "no credit is left", "credit"),
        (Answer(status=429, error="insufficient_quota"), "no credit is left", "credit"),
        (Answer(status=403, error="not yours"), "not yours", "key"),
        (Answer(status=404, error="which model?"), "which model", "A3R_LLM"),
        (Answer(status=400, error="too long"), "too long", "another model"),
    ],
)
def test_what_does_not_pass_needs_a_person(
    provider: Any, answer: Answer, words: str, hint: str
) -> None:
    server = provider(lambda _: answer)
    with pytest.raises(ModelRefused, match=words) as caught:
        _model(server).complete(HELLO)
    assert hint in caught.value.hint


def test_a_slow_provider_is_given_up_and_may_bill(provider: Any) -> None:
    server = provider(lambda _: Answer("late", delay_s=60.0))
    with pytest.raises(ModelUnavailable, match="no answer in time") as caught:
        _model(server, timeout_s=0.3).complete(HELLO)
    assert caught.value.details["maybe_billed"] is True


def test_nobody_there_costs_nothing() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        model = LitellmModel("openai/x", base_url=url, api_key="k", price=PRICE)
        with pytest.raises(ModelUnavailable, match="can not be reached") as caught:
            model.complete(HELLO)
    assert caught.value.details["maybe_billed"] is False


def test_a_provider_that_litellm_does_not_know_is_refused() -> None:
    model = LitellmModel("nobody/model")
    assert model.price() is None
    with pytest.raises(ModelRefused, match="nobody/model"):
        model.complete(HELLO)


def test_prices_are_litellms_unless_somebody_else_serves() -> None:
    known = LitellmModel("openai/gpt-4o").price()
    assert known == known_price("gpt-4o")
    assert known is not None
    assert 0 < known.prompt_usd < known.completion_usd
    assert LitellmModel("openai/gpt-4o", base_url="http://127.0.0.1:1").price() is None
    assert LitellmModel("openai/gpt-4o", price=PRICE).price() == PRICE
    assert known_price("openai/nobody-heard-of-it") is None


def test_the_dearest_tier_is_what_is_reserved() -> None:
    entries = library().model_cost
    name = next(
        k
        for k, v in entries.items()
        if "input_cost_per_token_above_200k_tokens" in v and k.startswith("gemini/")
    )
    price = known_price(name)
    assert price is not None
    assert price.prompt_usd == entries[name]["input_cost_per_token_above_200k_tokens"]


def test_tokens_are_counted_from_above() -> None:
    model = LitellmModel("openai/stand-in", price=PRICE)
    text = "The quick brown fox jumps over the lazy dog. " * 100
    exact = library().token_counter(model="gpt-4o", text=text)
    request = ModelRequest(messages=(ModelMessage(role="user", content=text),))
    assert exact < model.count_tokens(request) < 2 * exact
    with_tool = request.model_copy(
        update={"tools": (ToolSpec(name="t", description=text, parameters={}),)}
    )
    assert model.count_tokens(with_tool) > 1.8 * model.count_tokens(request)


def test_missing_keys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert missing_keys("anthropic/claude-sonnet-4-5") == ["ANTHROPIC_API_KEY"]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    assert missing_keys("anthropic/claude-sonnet-4-5") == []


def _ask(server: StandIn) -> Word:
    desk = Desk(MemoryJournal(), _model(server), "c")
    return desk.ask("d", "plan", [ModelMessage(role="user", content="A word?")], Word)


@pytest.mark.parametrize("mood", ["good", "fenced", "prose", "cut-off", "missing-key"])
def test_the_desk_reads_a_malformed_reply_or_has_it_repaired(provider: Any, mood: str) -> None:
    server = provider(MOODS[mood]()(lambda _: said(Word(word="hare"))))
    assert _ask(server) == Word(word="hare")
    assert len(server.asked) == (2 if mood in ("cut-off", "missing-key") else 1)


def test_the_desk_stops_clearly_when_no_reply_fits(provider: Any) -> None:
    server = provider(never_right(lambda _: said(Word(word="hare"))))
    with pytest.raises(ReplyInvalid):
        _ask(server)


def test_after_a_few_failures_all_is_well(provider: Any) -> None:
    server = provider(Failing([429, 500], retry_after_s=3.0)(lambda _: said(Word(word="hare"))))
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            _ask(server)
    assert _ask(server) == Word(word="hare")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"Retry-After": "Wed, 01 Jan 2025 00:01:00 GMT"}, 60.0),
        ({"Retry-After": "Wed, 01 Jan 2020 00:01:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers, datetime(2025, 1, 1, tzinfo=UTC)) == seconds
