"""Deadlines, retries and errors on real sockets."""

from __future__ import annotations

import random
import time

import orjson
import pytest

from swarm.client import AsyncSwarmClient, ClientUsageError, SwarmClient, calls
from swarm.client.retry import LONGEST_DELAY_S, Backoff, retry_after_s
from swarm.protocol.episodes import FinishRequest, GrantRequest
from swarm.protocol.errors import (
    AuthError,
    EngineFailed,
    JournalFailed,
    QueueFull,
    ServerUnreachable,
    StateError,
)
from swarm.protocol.messages import Status
from swarm.testing.scripted_server import http_reply as http
from swarm.testing.scripted_server import scripted_server

STATUS = b'{"state": "ROLLING", "step": 4}'
QUEUE_FULL = orjson.dumps(QueueFull("full", hint="later").envelope())
FAILED = orjson.dumps(EngineFailed("gone").envelope())
GRANT = GrantRequest(client_id="c", task_id="t")


def test_a_silent_server_is_unreachable_at_the_deadline(silent_url: str) -> None:
    began = time.monotonic()
    with (
        SwarmClient(silent_url, "t", timeout_s=0.3) as client,
        pytest.raises(ServerUnreachable) as caught,
    ):
        client.status()
    assert 0.2 < time.monotonic() - began < 3
    assert silent_url in caught.value.message
    assert "swarm status" in caught.value.hint


async def test_every_async_wait_on_a_silent_server_has_a_deadline(silent_url: str) -> None:
    began = time.monotonic()
    async with AsyncSwarmClient(silent_url, "t", timeout_s=0.2, chat_timeout_s=0.2) as client:
        with pytest.raises(ServerUnreachable):
            await client.status()
        with pytest.raises(ServerUnreachable):
            await client.wait_step(0, timeout_s=0.1)
        with pytest.raises(ServerUnreachable):
            await client.send(calls.chat("key", {}, 0.2))
        with pytest.raises(ServerUnreachable):
            async with client.episode("t", grant_timeout_s=0.1):
                pytest.fail("no episode can have been granted")
    assert time.monotonic() - began < 6


def test_a_refused_connection_is_tried_until_the_deadline(closed_url: str) -> None:
    with SwarmClient(closed_url, "t", timeout_s=0.3) as client:
        with pytest.raises(ServerUnreachable):
            client.status()
        with pytest.raises(ServerUnreachable):
            client.grant(GRANT)


def test_an_idempotent_call_survives_a_cut_connection_and_a_503() -> None:
    with (
        scripted_server([b"", http("503 Busy", FAILED), http("200 OK", STATUS)]) as (url, served),
        SwarmClient(url, "t") as client,
    ):
        assert client.status().step == 4
        assert served() == 3


def test_what_the_servers_journal_could_not_take_is_sent_again_but_no_call_is() -> None:
    full = orjson.dumps(JournalFailed("the disk is full").envelope())
    answer = b'{"episode_id": "e", "state": "finished", "accepted": true, "step": 0}'
    with (
        scripted_server([http("500 Error", full), http("200 OK", answer)]) as (url, served),
        SwarmClient(url, "t") as client,
    ):
        assert client.send(calls.finish("e", FinishRequest(reward=1.0))).accepted
        assert served() == 2
    with (
        scripted_server([http("500 Error", full)]) as (url, served),
        SwarmClient(url, "t") as client,
    ):
        with pytest.raises(JournalFailed):
            client.send(calls.chat("key", {}, 5.0))
        assert served() == 1


async def test_the_async_client_retries_the_same_way() -> None:
    with scripted_server([b"", http("502 Bad", b"<html>"), http("200 OK", STATUS)]) as (
        url,
        served,
    ):
        async with AsyncSwarmClient(url, "t") as client:
            assert (await client.status()).step == 4
        assert served() == 3


def test_a_chat_call_is_not_sent_again_after_a_cut_connection() -> None:
    with (
        scripted_server([b"", http("200 OK", b"{}")]) as (url, served),
        SwarmClient(url, "t") as client,
    ):
        with pytest.raises(ServerUnreachable):
            client.send(calls.chat("key", {}, 5.0))
        assert served() == 1


def test_a_grant_is_sent_again_under_the_name_of_its_first_sending() -> None:
    named = [calls.grant(GRANT) for _ in range(2)]
    ids = [orjson.loads(call.body or b"")["request_id"] for call in named]
    assert all(ids)
    assert ids[0] != ids[1]
    again = GRANT.model_copy(update={"request_id": "mine"})
    assert orjson.loads(calls.grant(again).body or b"")["request_id"] == "mine"
    answer = orjson.dumps({"outcome": "granted", "step": 0, "episode_id": "ep-1"})
    with (
        scripted_server([b"", http("200 OK", answer)]) as (url, served),
        SwarmClient(url, "t") as client,
    ):
        assert client.grant(GRANT).episode_id == "ep-1"
        assert served() == 2


async def test_a_full_queue_is_waited_out_as_long_as_it_says() -> None:
    reply = {
        "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]
    }
    replies = [
        http("429 Full", QUEUE_FULL, "Retry-After: 0.3"),
        http("200 OK", orjson.dumps(reply)),
    ]
    with scripted_server(replies) as (url, served):
        async with AsyncSwarmClient(url, "t") as client:
            began = time.monotonic()
            body = await client.send(calls.chat("key", {}, 5.0))
    assert body == reply
    assert served() == 2
    assert time.monotonic() - began >= 0.3


def test_a_failed_boot_is_an_answer_and_not_repeated() -> None:
    with (
        scripted_server([http("503 Failed", FAILED)] * 2) as (url, served),
        SwarmClient(url, "t") as client,
    ):
        with pytest.raises(EngineFailed):
            client.start()
        assert served() == 1


def test_errors_arrive_as_the_server_raised_them() -> None:
    envelope = orjson.dumps(StateError("busy", hint="stop first", step=3).envelope())
    with (
        scripted_server([http("409 Conflict", envelope)]) as (url, _),
        SwarmClient(url, "t") as client,
        pytest.raises(StateError) as caught,
    ):
        client.status()
    assert (caught.value.message, caught.value.hint, caught.value.details) == (
        "busy",
        "stop first",
        {"step": 3},
    )


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"{}", b"7"])
def test_an_answer_of_something_else_is_said_to_be_none(body: bytes) -> None:
    with (
        scripted_server([http("200 OK", body)] * 2) as (url, _),
        SwarmClient(url, "t") as client,
        pytest.raises(ServerUnreachable, match="not a swarm server"),
    ):
        client.status()


async def test_the_async_client_says_the_same_of_an_answer_of_something_else() -> None:
    with scripted_server([http("200 OK", b"7")] * 2) as (url, _):
        async with AsyncSwarmClient(url, "t") as client:
            with pytest.raises(ServerUnreachable, match="not a swarm server"):
                await client.metrics()


def test_an_answer_that_is_not_ours_becomes_a_class_by_its_status() -> None:
    assert isinstance(calls.read_error("u", 401, b"<html>"), AuthError)
    assert isinstance(calls.read_error("u", 502, b"<html>"), ServerUnreachable)


def test_delays_grow_with_jitter_to_a_bound_and_end_before_the_deadline() -> None:
    now = [0.0]
    backoff = Backoff(100.0, clock=lambda: now[0], rng=random.Random(0))
    delays = [backoff.next_delay() or 0.0 for _ in range(12)]
    assert all(0 < d <= LONGEST_DELAY_S for d in delays)
    assert delays[-1] > delays[0]
    assert backoff.next_delay(retry_after=50.0) == 50.0
    now[0] = 99.99
    assert backoff.next_delay() is None


def test_retry_after_reads_seconds_only() -> None:
    assert retry_after_s({"Retry-After": "1.5"}) == 1.5
    assert retry_after_s({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) is None
    assert retry_after_s({}) is None


def test_the_address_is_checked_and_trimmed_and_the_token_stays_hidden() -> None:
    with pytest.raises(ClientUsageError):
        SwarmClient("127.0.0.1:8000", "secret")
    client = SwarmClient("http://h:1/v1/", "secret")
    assert client.settings.url == "http://h:1"
    assert "secret" not in repr(client.settings)


def test_a_held_status_may_take_its_hold_on_top_of_the_deadline() -> None:
    call = calls.status(3, 20.0)
    assert call.extra_s == 20.0
    assert call.read(STATUS) == Status.model_validate_json(STATUS)
