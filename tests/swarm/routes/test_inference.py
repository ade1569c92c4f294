import asyncio

import openai
import orjson
import pytest

from swarm.server.service.inference import HELD_LIMIT
from swarm.testing import retry_until

CHAT = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {"name": "calculate", "parameters": {"type": "object", "properties": {}}},
}


def body(text="Compute 1+2.", **keys):
    return {"model": "any", "messages": [{"role": "user", "content": text}], **keys}


def events(raw):
    blocks = [block for block in raw.split("\n\n") if block.startswith("data: ")]
    assert blocks[-1] == "data: [DONE]"
    return [orjson.loads(block.removeprefix("data: ")) for block in blocks[:-1]]


async def test_a_call_is_answered_in_openais_words_and_captured(rig):
    rig.fleet.latest.script = lambda _request: "3"
    grant = await rig.grant()
    answer = await rig.ask(
        "POST", CHAT, grant["api_key"], json=body(temperature=0.5, max_tokens=9, user="me")
    )
    assert answer.status_code == 200
    got = answer.json()
    assert got["object"] == "chat.completion"
    assert got["choices"][0]["message"]["content"] == "3"
    assert got["choices"][0]["finish_reason"] == "stop"
    assert (
        got["usage"]["total_tokens"]
        == got["usage"]["prompt_tokens"] + got["usage"]["completion_tokens"]
    )
    assert answer.headers["x-swarm-policy-version"] == "0"
    assert answer.headers["x-swarm-step"] == "0"
    assert orjson.loads(answer.headers["x-swarm-applied"]) == {"temperature": 0.5, "max_tokens": 9}
    trace = await rig.ask("GET", f"/swarm/episodes/{grant['episode_id']}/trace", rig.tokens.client)
    call = trace.json()["calls"][0]
    assert call["requested"] == {"model": "any", "temperature": 0.5, "max_tokens": 9, "user": "me"}
    assert call["reply"]["content"] == "3"


@pytest.mark.every_engine
async def test_the_key_may_come_by_header_or_url(rig):
    key = (await rig.grant())["api_key"]
    by_header = await rig.ask("POST", CHAT, headers={"x-api-key": key}, json=body())
    by_url = await rig.ask("POST", f"/e/{key}{CHAT}", json=body())
    models = await rig.ask("GET", f"/e/{key}/v1/models")
    assert by_header.status_code == by_url.status_code == 200
    assert models.json()["data"][0]["id"] == by_url.json()["model"]


@pytest.mark.every_engine
async def test_a_tampered_key_is_401_and_not_quoted(rig):
    key = (await rig.grant())["api_key"]
    middle = len(key) // 2
    tampered = key[:middle] + ("A" if key[middle] != "A" else "B") + key[middle + 1 :]
    answer = await rig.ask("POST", CHAT, tampered, json=body())
    assert answer.status_code == 401
    assert tampered not in answer.text


@pytest.mark.every_engine
async def test_a_token_that_has_no_power_here_is_403_and_the_hint_says_what_it_takes(rig):
    grant = await rig.grant()
    for token in (rig.tokens.admin, rig.tokens.client, rig.tokens.eval):
        refused = await rig.ask("POST", CHAT, token, json=body())
        assert refused.status_code == 403
        error = refused.json()["error"]
        assert (error["code"], error["type"]) == ("forbidden", "permission_error")
        assert token not in refused.text
    by_messages = await rig.ask("POST", "/v1/messages", rig.tokens.client, json=body())
    assert by_messages.json()["error"]["type"] == "permission_error"
    for path in ("/swarm/status", f"/swarm/episodes/{grant['episode_id']}/trace"):
        answer = await rig.ask("GET", path, grant["api_key"])
        assert answer.status_code == 403
        assert answer.headers["x-should-retry"] == "false"
    # The secret that signs keys opens nothing, and is nobody's token.
    assert (await rig.ask("POST", CHAT, rig.tokens.signing, json=body())).status_code == 401


async def test_a_key_in_x_api_key_counts_also_beside_an_empty_bearer(rig):
    key = (await rig.grant())["api_key"]
    headers = {"authorization": "Bearer ", "x-api-key": key}
    assert (await rig.ask("POST", CHAT, headers=headers, json=body())).status_code == 200


@pytest.mark.every_engine
async def test_an_ended_episode_is_410_which_no_sdk_retries(rig):
    grant = await rig.grant()
    await rig.ask(
        "POST", f"/swarm/episodes/{grant['episode_id']}/abort", rig.tokens.client, json={}
    )
    answer = await rig.ask("POST", CHAT, grant["api_key"], json=body())
    assert answer.status_code == 410
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["code"] == "episode_gone"
    streamed = await rig.ask("POST", CHAT, grant["api_key"], json=body(stream=True))
    assert streamed.status_code == 410


@pytest.mark.every_engine
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_cannot_succeed_is_400_and_names_what_is_wrong(rig, stream):
    key = (await rig.grant())["api_key"]
    unsupported = await rig.ask("POST", CHAT, key, json=body(audio={"voice": "x"}, stream=stream))
    assert unsupported.status_code == 400
    error = unsupported.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "audio")
    assert error["type"] == "invalid_request_error"
    wrong = await rig.ask("POST", CHAT, key, json=body(top_p=1.5, stream=stream))
    assert wrong.status_code == 400
    assert "top_p" in wrong.json()["error"]["message"]
    too_long = await rig.ask("POST", CHAT, key, json=body("word " * 3000, stream=stream))
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"
    broken = await rig.ask("POST", CHAT, key, content=b'{"messages": [')
    assert broken.status_code == 400
    assert broken.json()["error"]["hint"]


@pytest.mark.every_engine
async def test_logprobs_and_token_ids_have_one_entry_a_token(rig):
    key = (await rig.grant())["api_key"]
    sent = body(logprobs=True, top_logprobs=1, return_token_ids=True)
    whole = (await rig.ask("POST", CHAT, key, json=sent)).json()
    choice = whole["choices"][0]
    assert (
        len(choice["token_ids"])
        == whole["usage"]["completion_tokens"]
        == len(choice["logprobs"]["content"])
    )
    assert len(whole["prompt_token_ids"]) == whole["usage"]["prompt_tokens"]
    entry = choice["logprobs"]["content"][0]
    assert entry["logprob"] < 0
    assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]
    assert len(entry["top_logprobs"]) == 1
    streamed = events((await rig.ask("POST", CHAT, key, json={**sent, "stream": True})).text)
    pieces = [chunk["choices"][0] for chunk in streamed]
    ids = [token for piece in pieces for token in piece.get("token_ids", [])]
    tokens = [t for piece in pieces for t in (piece["logprobs"] or {}).get("content", [])]
    assert len(ids) == len(tokens) > 0
    assert streamed[-1]["prompt_token_ids"] == whole["prompt_token_ids"]


async def test_a_stream_begins_with_the_role_and_ends_with_usage_only_when_asked_for(rig):
    rig.fleet.latest.script = lambda _request: "85"
    key = (await rig.grant())["api_key"]
    plain = events((await rig.ask("POST", CHAT, key, json=body(stream=True))).text)
    assert plain[0]["choices"][0]["delta"]["role"] == "assistant"
    assert plain[-1]["choices"][0]["finish_reason"] == "stop"
    assert plain[-1]["swarm"]["policy_version"] == 0
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in plain) == "85"
    sent = body(stream=True, stream_options={"include_usage": True})
    counted = events((await rig.ask("POST", CHAT, key, json=sent)).text)
    assert counted[-1]["choices"] == []
    assert counted[-1]["usage"]["completion_tokens"] > 0
    assert counted[0]["usage"] is None


async def _whole(client, **keys):
    answer = await client.chat.completions.create(model="any", messages=body()["messages"], **keys)
    choice = answer.choices[0]
    calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
    return choice.message.content or "", calls, choice.finish_reason, answer.usage


async def _streamed(client, **keys):
    stream = await client.chat.completions.create(
        model="any",
        messages=body()["messages"],
        stream=True,
        stream_options={"include_usage": True},
        **keys,
    )
    text, calls, reason, usage = "", {}, None, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (
                    name + (call.function.name or ""),
                    arguments + (call.function.arguments or ""),
                )
    return text, [calls[i] for i in sorted(calls)], reason, usage


@pytest.mark.parametrize("reply", ["The sum is 85.", "<tool_call>37+48</tool_call>"])
@pytest.mark.parametrize("tools", [[], [TOOL]])
async def test_the_openai_sdk_sees_the_same_answer_whole_and_streamed(live, reply, tools):
    live.fleet.latest.script = lambda _request: reply
    grant = await live.grant()
    keys = {"tools": tools} if tools else {}
    async with openai.AsyncOpenAI(
        api_key=grant["api_key"], base_url=grant["base_url"], max_retries=0
    ) as client:
        whole, streamed = await _whole(client, **keys), await _streamed(client, **keys)
    assert whole == streamed
    if tools and reply.startswith("<"):
        [(name, arguments)] = whole[1]
        assert (name, orjson.loads(arguments)) == ("calculate", {"expression": "37+48"})
        assert whole[2] == "tool_calls"
    else:
        assert whole[0] == reply


@pytest.mark.every_engine
async def test_the_openai_sdk_does_not_retry_an_ended_episode(live):
    grant = await live.grant()
    await live.ask(
        "POST", f"/swarm/episodes/{grant['episode_id']}/abort", live.tokens.client, json={}
    )
    async with openai.AsyncOpenAI(api_key=grant["api_key"], base_url=grant["base_url"]) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="any", messages=body()["messages"])
    assert caught.value.status_code == 410


@pytest.mark.parametrize("stream", [False, True])
async def test_the_clients_disconnect_aborts_the_generation(live, stream):
    engine = live.fleet.latest
    engine.hold = asyncio.Event()
    grant = await live.grant()
    call = asyncio.create_task(
        live.ask("POST", CHAT, grant["api_key"], json=body(stream=stream), timeout=30)
    )
    await retry_until(lambda: engine.generating == 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await retry_until(lambda: engine.generating == 0)
    engine.hold.set()
    engine.hold = None
    assert (await live.ask("POST", CHAT, grant["api_key"], json=body())).status_code == 200


@pytest.mark.every_engine
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bias_is_applied_told_and_kept_in_the_trace(rig, stream):
    grant = await rig.grant()
    bias = {str(token): -1.0 for token in range(300)}
    sent = body(logit_bias=bias, stream=stream)
    answer = await rig.ask("POST", CHAT, grant["api_key"], json=sent)
    assert answer.status_code == 200
    if stream:
        assert events(answer.text)[-1]["swarm"]["applied"]["logit_bias"] == bias
    else:
        assert orjson.loads(answer.headers["x-swarm-applied"])["logit_bias"] == "300 tokens"
    trace = await rig.ask("GET", f"/swarm/episodes/{grant['episode_id']}/trace", rig.tokens.client)
    assert trace.json()["calls"][0]["applied"]["logit_bias"] == bias


async def test_a_full_queue_is_429_and_counts_as_no_call(rig):
    grant = await rig.grant()
    episode = rig.service.episode_for_key(grant["api_key"])
    rig.service._inference._generation.held = HELD_LIMIT
    answer = await rig.ask("POST", CHAT, grant["api_key"], json=body())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["error"]["type"] == "rate_limit_error"
    rig.service._inference._generation.held = 0
    assert (episode.begun_calls, episode.pending) == (0, set())
    assert (await rig.ask("POST", CHAT, grant["api_key"], json=body())).status_code == 200
