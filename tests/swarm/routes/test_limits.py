"""Requests that are too large, too deep, too slow or odd: refused by name, never a 5xx, and nobody else waits for them."""

import asyncio
import json

import httpx
import orjson
import pytest
from starlette.requests import Request

from swarm.protocol.errors import BodyTooLarge, RequestError
from swarm.server.routes.bodies import read_body
from swarm.server.routes.dialects.common.limits import MAX_DEPTH, check_size, deeper_than

USER = [{"role": "user", "content": "Compute 1+2."}]
ROUTES = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "1+2="},
    "/v1/responses": {"input": "Compute 1+2."},
    "/v1/messages": {"messages": USER, "max_tokens": 9},
}
MEGABYTE = 1 << 20


def nested(levels, inside=1):
    for _ in range(levels):
        inside = {"a": inside}
    return inside


def schema(levels):
    return {"type": "function", "function": {"name": "f", "parameters": nested(levels)}}


ODD = {
    "deep schema": {"tools": [schema(100)]},
    "very deep": {"x": nested(250)},
    "deep kwargs": {"chat_template_kwargs": nested(90)},
    "many messages": {"messages": USER * 20_000},
    "many tools": {"tools": [schema(1)] * 20_000},
    "many values": {"x": [[]] * 300_000},
    "long text": {"messages": [{"role": "user", "content": "a1 " * 2_000_000}]},
    "one word": {"messages": [{"role": "user", "content": "a" * (8 * MEGABYTE)}]},
    "prompt of odd ids": {"prompt": [1, 1 << 40]},
    "prompt of negative ids": {"prompt": [-1]},
    "bias of no number": {"logit_bias": {"²": 1}},
    "bias of a long number": {"logit_bias": {"9" * 5000: 1}},
    "huge top_k": {"top_k": 1e300},
    "huge min_tokens": {"min_tokens": 1 << 80},
    "huge stop id": {"stop_token_ids": [1 << 70]},
    "odd kwargs": {"chat_template_kwargs": {"bos_token": 5, "eos_token": [], "x": {"y": None}}},
    "long role": {"messages": [{"role": "x" * 100_000, "content": "x"}]},
    "odd content": {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    "odd call": {
        "messages": [
            *USER,
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{" * 999}}]},
            {"role": "tool", "tool_call_id": "1", "content": "x"},
        ]
    },
    "deep call": {
        "messages": [
            *USER,
            {
                "role": "assistant",
                "tool_calls": [
                    {"function": {"name": "f", "arguments": orjson.dumps(nested(240)).decode()}}
                ],
            },
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("path", ROUTES)
async def test_an_odd_request_is_answered_and_never_with_a_5xx(rig, path, what):
    key = (await rig.grant())["api_key"]
    raw = json.dumps(ROUTES[path] | ODD[what])
    answer = await rig.ask("POST", path, key, content=raw)
    assert answer.status_code < 500, answer.text[:300]
    if answer.status_code != 200:
        assert answer.headers["x-should-retry"] == "false"
        assert len(answer.text) < 2000
    trace = await rig.ask("GET", "/swarm/pool", rig.tokens.admin)
    assert trace.status_code == 200


@pytest.mark.parametrize(
    "raw", [b"[" * 5000, b'{"a":' * 5000, b"{" + b"[" * 199_999, b"\xff", b"nul"]
)
async def test_broken_json_is_400_or_413(rig, raw):
    key = (await rig.grant())["api_key"]
    answer = await rig.ask("POST", "/v1/chat/completions", key, content=raw)
    assert answer.status_code in (400, 413)


def over_http(rig, key=""):
    """A client with connections of its own."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=rig.url, headers=headers, timeout=60)


async def test_a_body_of_64_megabytes_is_refused_and_holds_up_nobody(live):
    grant = await live.grant()
    raw = orjson.dumps({"messages": [{"role": "user", "content": "a" * (64 * MEGABYTE)}]})
    done = asyncio.Event()

    async def meanwhile(http):
        answers = 0
        while not done.is_set():
            assert (await http.get("/health")).status_code == 200
            answers += 1
        return answers

    async with over_http(live, grant["api_key"]) as http, over_http(live) as other:
        asking = asyncio.create_task(meanwhile(other))
        answer = await http.post("/v1/chat/completions", content=raw)
        done.set()
        answers = await asking
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert answers > 10


async def test_bodies_that_come_slowly_do_not_hold_up_others(live):
    grant = await live.grant()
    gate = asyncio.Event()
    raw = orjson.dumps({"messages": USER})

    async def slow():
        yield raw[:5]
        await gate.wait()
        yield raw[5:]

    path = "/v1/chat/completions"
    async with over_http(live, grant["api_key"]) as http:
        waiting = [asyncio.create_task(http.post(path, content=slow())) for _ in range(20)]
        assert (await http.post(path, content=raw)).status_code == 200
        assert not any(task.done() for task in waiting)
        gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


def request_of(messages):
    queue = list(messages)

    async def receive():
        if queue:
            return queue.pop(0)
        await asyncio.Event().wait()
        return None

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def part(raw, more):
    return {"type": "http.request", "body": raw, "more_body": more}


async def test_a_body_that_stops_coming_is_given_up():
    request = request_of([part(b"{", more=True)])
    with pytest.raises(RequestError, match="stopped after 1 bytes"):
        await read_body(request, patience_s=0.01)


async def test_a_body_that_is_too_large_is_read_to_its_end_and_forgotten():
    parts = [part(b"x" * 10, more=True) for _ in range(5)] + [part(b"", more=False)]
    with pytest.raises(BodyTooLarge):
        await read_body(request_of(parts), limit=25)
    assert await read_body(request_of(parts[-1:]), limit=25) == b""


def test_levels_are_counted_through_lists_and_objects():
    deepest = nested(MAX_DEPTH)
    assert not deeper_than(deepest, MAX_DEPTH)
    assert deeper_than([deepest], MAX_DEPTH)
    assert not deeper_than("text", 0)


def test_values_are_bounded_before_anything_is_parsed():
    assert check_size(b'{"a": [1, 2]}') == 2
    with pytest.raises(BodyTooLarge):
        check_size(b"," * 2_000_001)


@pytest.mark.every_engine
async def test_a_prompt_that_is_too_long_marks_the_episode(rig):
    grant = await rig.grant()
    body = {"messages": [{"role": "user", "content": "word " * 3000}]}
    for _ in range(2):
        refused = await rig.ask("POST", "/v1/chat/completions", grant["api_key"], json=body)
        assert refused.json()["error"]["code"] == "context_length_exceeded"
    path = f"/swarm/episodes/{grant['episode_id']}"
    assert (await rig.ask("GET", path, rig.tokens.client)).json()["context_overflows"] == 2
    await rig.ask("POST", f"{path}/finish", rig.tokens.client, json={"reward": 1.0})
    assert (await rig.ask("GET", path, rig.tokens.client)).json()["context_overflows"] == 2
