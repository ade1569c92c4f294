"""External models: asked again, booked, never blamed on the agent."""

from __future__ import annotations

from collections.abc import Generator

import openai
import pytest

from swarm.client import ClientUsageError, ExternalModel, ExternalModelDown, Price
from swarm.client.external import Book, Usage, is_outage, read_usage
from swarm.client.external_routes import AsyncExternalServer, ExternalServer
from swarm.protocol.errors import AuthError, RequestError
from swarm.testing.outside_model import OutsideModel, outside_model

HELLO = [{"role": "user", "content": "Is this right?"}]
PRICE = Price(input_usd=3.0, output_usd=15.0, cached_input_usd=0.3)
UNAVAILABLE = (500, {"error": {"message": "try later", "type": "server_error"}})


@pytest.fixture
def outside() -> Generator[OutsideModel]:
    with outside_model(text="yes of course") as model:
        yield model


def server(model: OutsideModel, **changes: object) -> ExternalServer:
    values = {"price": PRICE, "secret": "JUDGE_KEY", **changes}
    external = ExternalModel(model.base_url, "judge-1", **values)  # pyright: ignore[reportArgumentType]
    return ExternalServer("judge", external, external.key("judge", {"JUDGE_KEY": "sk-123"}))


# --- the light path --------------------------------------------------------------------------------------------


def test_an_answer_is_booked_with_its_price(outside: OutsideModel) -> None:
    total = Book()
    book = Book(total)
    judge = server(outside).route(book)
    answer = judge.chat(HELLO, temperature=0.0, max_tokens=None)
    assert answer.text == "yes of course"
    assert book.by_role() == total.by_role() == {"judge": Usage(1, 1000, 10, 0.00315)}
    (request,) = outside.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["body"] == {"model": "judge-1", "messages": HELLO, "temperature": 0.0}
    assert request["headers"]["authorization"] == "Bearer sk-123"
    assert not [name for name in request["headers"] if name.startswith("x-")]


async def test_the_async_route_does_the_same(outside: OutsideModel) -> None:
    outside.refusals = [UNAVAILABLE]
    external = ExternalModel(outside.base_url, "judge-1", price=PRICE)
    book, one = Book(), AsyncExternalServer("judge", external, "")
    answer = await one.route(book).chat(HELLO)
    sdk = one.route(book).async_openai()
    completion = await sdk.chat.completions.create(model="judge-1", messages=HELLO)  # pyright: ignore[reportArgumentType]
    await one.close()
    assert answer.text == completion.choices[0].message.content == "yes of course"
    assert book.total() == Usage(2, 2000, 20, 0.0063)


def test_an_outage_that_passes_is_waited_for(outside: OutsideModel) -> None:
    overloaded = (529, {"type": "error", "error": {"type": "overloaded_error"}})
    outside.refusals = [UNAVAILABLE, overloaded, (429, {"error": {"message": "slow down"}})]
    book = Book()
    assert server(outside).route(book).chat(HELLO).text == "yes of course"
    assert len(outside.requests) == 4
    assert book.total().calls == 1
    assert book.down() == {}


def test_an_outage_that_stays_is_an_error_of_its_own(outside: OutsideModel) -> None:
    outside.down = True
    book = Book()
    with pytest.raises(
        ExternalModelDown, match=r"'judge-1' of role 'judge' .* overloaded"
    ) as caught:
        server(outside, patience_s=0.3).route(book).chat(HELLO)
    assert len(outside.requests) > 1
    assert "judge" in book.down()
    assert book.total().metrics() == {}
    assert is_outage(caught.value, {})


def test_an_address_where_nobody_answers_is_an_outage(closed_url: str) -> None:
    model = ExternalModel(f"{closed_url}/v1", "judge-1", patience_s=0.2)
    with pytest.raises(ExternalModelDown, match="does not answer"):
        ExternalServer("judge", model, "").route(Book()).chat(HELLO)


def test_no_money_is_an_outage_and_not_asked_again(outside: OutsideModel) -> None:
    outside.refusals = [(402, {"error": {"message": "insufficient credits"}})]
    with pytest.raises(ExternalModelDown, match="insufficient credits"):
        server(outside).route(Book()).chat(HELLO)
    assert len(outside.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_named_by_its_secret_only(outside: OutsideModel, status: int) -> None:
    outside.refusals = [(status, {"error": {"message": "bad key"}})]
    with pytest.raises(AuthError, match="'JUDGE_KEY'") as caught:
        server(outside).route(Book()).chat(HELLO)
    assert "sk-123" not in str(caught.value)
    assert not is_outage(caught.value, {"judge": outside.base_url})


def test_a_wrong_request_is_the_agents_own(outside: OutsideModel) -> None:
    outside.refusals = [(400, {"error": {"message": "no such parameter"}})]
    with pytest.raises(RequestError, match="no such parameter"):
        server(outside).route(Book()).chat(HELLO, tempature=1)
    assert len(outside.requests) == 1


# --- the OpenAI SDK --------------------------------------------------------------------------------------------


def test_the_sdk_is_booked_whole_and_streamed(outside: OutsideModel) -> None:
    book, other, one = Book(), Book(), server(outside)
    sdk = one.route(book).openai()
    whole = sdk.chat.completions.create(model="judge-1", messages=HELLO)  # pyright: ignore[reportArgumentType]
    assert whole.choices[0].message.content == "yes of course"
    assert book.total() == Usage(1, 1000, 10, 0.00315)
    stream = sdk.chat.completions.create(
        model="judge-1",
        messages=HELLO,  # pyright: ignore[reportArgumentType]
        stream=True,
        stream_options={"include_usage": True},
    )
    said = [c.choices[0].delta.content for c in stream if c.choices]
    assert said == ["yes", "of", "course", None]
    assert book.total() == Usage(2, 2000, 20, 0.0063)
    one.route(other).openai().chat.completions.create(model="judge-1", messages=HELLO)  # pyright: ignore[reportArgumentType]
    one.close()
    assert (book.total().calls, other.total().calls) == (2, 1)
    assert not [h for r in outside.requests for h in r["headers"] if h.startswith("x-swarm")]


def test_a_stream_that_does_not_say_what_it_used_is_of_unknown_cost(outside: OutsideModel) -> None:
    book, one = Book(), server(outside)
    sdk = one.route(book).openai()
    list(sdk.chat.completions.create(model="judge-1", messages=HELLO, stream=True))  # pyright: ignore[reportArgumentType]
    one.close()
    assert book.total() == Usage(calls=1, unpriced=1)
    assert book.total().metrics() == {
        "external_calls": 1.0,
        "external_prompt_tokens": 0.0,
        "external_completion_tokens": 0.0,
        "external_calls_unpriced": 1.0,
    }


def test_an_outage_under_the_sdk_is_known_by_its_address(outside: OutsideModel) -> None:
    outside.down = True
    book, one = Book(), server(outside)
    sdk = one.route(book).openai().with_options(max_retries=1)
    with pytest.raises(openai.InternalServerError) as caught:
        sdk.chat.completions.create(model="judge-1", messages=HELLO)  # pyright: ignore[reportArgumentType]
    assert is_outage(caught.value, {"judge": outside.base_url})
    assert not is_outage(caught.value, {"judge": "http://elsewhere.example/v1"})
    assert book.down() == {"judge": "it answered HTTP 503"}
    outside.down = False
    sdk.chat.completions.create(model="judge-1", messages=HELLO)  # pyright: ignore[reportArgumentType]
    one.close()
    assert book.down() == {}


def test_a_closed_port_under_the_sdk_is_an_outage(closed_url: str) -> None:
    model = ExternalModel(f"{closed_url}/v1", "judge-1")
    book, one = Book(), ExternalServer("judge", model, "")
    sdk = one.route(book).openai().with_options(max_retries=0)
    with pytest.raises(openai.APIConnectionError) as caught:
        sdk.chat.completions.create(model="judge-1", messages=HELLO)  # pyright: ignore[reportArgumentType]
    one.close()
    assert is_outage(caught.value, {"judge": model.base_url})
    assert "ConnectError" in book.down()["judge"]


def test_only_what_an_outage_caused_is_excused() -> None:
    down = ExternalModelDown("down")
    wrapped = RuntimeError("the judge failed")
    wrapped.__cause__ = down
    beside = RuntimeError("a bug in the except clause")
    beside.__context__ = down
    assert is_outage(wrapped, {})
    assert not is_outage(beside, {})


# --- what it costs ---------------------------------------------------------------------------------------------


def test_tokens_from_the_providers_cache_have_their_own_price() -> None:
    model = ExternalModel("http://x.example/v1", "m", price=PRICE)
    details = {"prompt_tokens_details": {"cached_tokens": 800}}
    usage = read_usage(model, {"usage": {"prompt_tokens": 1000, "completion_tokens": 0, **details}})
    assert usage.cost_usd == pytest.approx((200 * 3.0 + 800 * 0.3) / 1e6)
    plain = ExternalModel("http://x.example/v1", "m", price=Price(3.0, 15.0))
    body = {"usage": {"prompt_tokens": 1000, "completion_tokens": 0, **details}}
    assert read_usage(plain, body).cost_usd == pytest.approx(0.003)


def test_a_cost_that_is_not_known_is_never_zero() -> None:
    free = ExternalModel("http://x.example/v1", "m", price=Price(0.0, 0.0))
    unpriced = ExternalModel("http://x.example/v1", "m")
    body = {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    assert read_usage(free, body).metrics()["external_cost_usd"] == 0.0
    assert "external_cost_usd" not in read_usage(unpriced, body).metrics()
    both = (read_usage(unpriced, body) + read_usage(free, body)).metrics()
    assert (both["external_cost_usd"], both["external_calls_unpriced"]) == (0.0, 1.0)
    assert read_usage(free, {"usage": {"prompt_tokens": "5"}}) == Usage(calls=1, unpriced=1)
    assert Usage().metrics() == {}


# --- what can never work ---------------------------------------------------------------------------------------


def test_a_secret_that_is_not_set_is_named() -> None:
    model = ExternalModel("https://x.example/v1", "m", secret="JUDGE_KEY")
    for secrets in ({}, {"JUDGE_KEY": "  "}):
        with pytest.raises(ClientUsageError, match="'JUDGE_KEY'"):
            model.key("judge", secrets)


@pytest.mark.parametrize(
    "url", ["api.example.com/v1", "ftp://x.example", "https://me:pw@x.example/v1"]
)
def test_an_address_that_can_never_work_is_refused(url: str) -> None:
    with pytest.raises(ClientUsageError) as caught:
        ExternalModel(url, "m")
    assert "pw" not in str(caught.value).replace(url, "") or url.startswith("https")
    assert caught.value.hint
