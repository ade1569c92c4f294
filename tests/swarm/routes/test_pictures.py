"""Agents show pictures to a served model: official SDKs over real HTTP, limits, what is captured and what is shown of it."""

import base64
import json
from contextlib import asynccontextmanager

import openai
import pytest

from swarm.protocol.config import BatchConfig, TrainConfig
from swarm.testing import retry_until
from swarm.testing.pictured_model import CONTEXT, make_pictured_model, png
from swarm.testing.toy_engine import IMAGE_TOKENS

CHAT = "/v1/chat/completions"
RED, BLUE = png(255), png(0, 0, 255)


def coded(data):
    return base64.b64encode(data).decode()


def part(data):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{coded(data)}"}}


def user(*pieces):
    parts = [{"type": "text", "text": p} if isinstance(p, str) else p for p in pieces]
    return {"role": "user", "content": parts}


@pytest.fixture
async def rig(offline, tmp_path):
    config = TrainConfig(
        engine="toy",
        model={"path": make_pictured_model(tmp_path / "model")},
        batch=BatchConfig(tasks=2, repeat=2),
        stop_at_step=3,
    )
    await offline.service.configure(config)
    await offline.service.start()
    return offline


@asynccontextmanager
async def openai_client(rig, key):
    async with (
        rig.client() as http,
        openai.AsyncOpenAI(
            api_key=key, base_url=f"{rig.url}/v1", http_client=http, max_retries=0,
            _strict_response_validation=True,
        ) as client,
    ):  # fmt: skip
        yield client


async def trace(rig, grant):
    path = f"/swarm/episodes/{grant['episode_id']}/trace"
    return await rig.ask("GET", path, rig.tokens.client)


async def ask(rig, key, *messages, **more):
    return await rig.ask("POST", CHAT, key, json={"model": "m", "messages": messages, **more})


async def test_the_openai_sdk_shows_a_picture_in_chat_and_in_responses(live):
    grant = await live.grant()
    async with openai_client(live, grant["api_key"]) as client:
        said = [
            await client.chat.completions.create(model="m", messages=[user("see ", part(data))])
            for data in (RED, BLUE)
        ]
        assert said[0].choices[0].message.content != said[1].choices[0].message.content
        shown = [
            {"type": "input_text", "text": "see "},
            {"type": "input_image", "detail": "auto", "image_url": part(RED)["image_url"]["url"]},
        ]
        first = await client.responses.create(
            model="m", input=[{"type": "message", "role": "user", "content": shown}]
        )
        then = await client.responses.create(
            model="m", input="and now?", previous_response_id=first.id
        )
        assert then.status == "completed"
    calls = (await trace(live, grant)).json()["calls"]
    assert [call["parent"] for call in calls] == [None, None, None, 2]
    assert calls[0]["prompt_ids"] == calls[1]["prompt_ids"] == calls[2]["prompt_ids"]


async def test_the_anthropic_sdk_shows_a_picture_to_the_model_and_from_a_tool(live):
    anthropic = pytest.importorskip("anthropic", reason="comes with make conformance")
    grant = await live.grant()
    source = {"type": "base64", "media_type": "image/png", "data": coded(RED)}
    image = {"type": "image", "source": source}
    text = {"type": "text", "text": "see "}
    turns = [
        {"role": "user", "content": [text, image]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]},
    ]  # fmt: skip
    async with anthropic.AsyncAnthropic(
        api_key=grant["api_key"], base_url=live.url, max_retries=0,
        _strict_response_validation=True,
    ) as client:  # fmt: skip
        whole = await client.messages.create(model="m", max_tokens=9, messages=turns)
        async with client.messages.stream(model="m", max_tokens=9, messages=turns[:1]) as stream:
            assert (await stream.get_final_message()).role == "assistant"
        counted = await client.messages.count_tokens(model="m", messages=turns)
        assert counted.input_tokens == whole.usage.input_tokens
        url = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
        with pytest.raises(anthropic.BadRequestError, match=r"source\.type"):
            await client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": [url]}]
            )
    calls = (await trace(live, grant)).json()["calls"]
    assert [m["content"] for m in calls[0]["messages"]][2][0]["type"] == "image"


async def test_a_stream_gives_what_the_whole_answer_gives(rig):
    grants = [await rig.grant(), await rig.grant()]
    rig.fleet.latest.script = lambda request: str(len(request.images))
    whole = await ask(rig, grants[0]["api_key"], user(part(RED), part(BLUE)))
    streamed = await ask(rig, grants[1]["api_key"], user(part(RED), part(BLUE)), stream=True)
    assert whole.json()["choices"][0]["message"]["content"] == "2"
    assert '"content":"2"' in streamed.text


async def test_a_picture_counts_in_the_context_for_as_much_as_it_takes(rig):
    grant = await rig.grant()
    key = grant["api_key"]
    one, two = [await ask(rig, key, user("see ", *[part(RED)] * n)) for n in (1, 2)]
    used = [answer.json()["usage"]["prompt_tokens"] for answer in (one, two)]
    assert used[1] - used[0] == IMAGE_TOKENS
    words = "1" * (CONTEXT - used[0] - 20)
    fits = await ask(rig, key, user("see ", part(RED), words))
    over = await ask(rig, key, user("see ", *[part(RED)] * 7, words))
    assert (fits.status_code, over.status_code) == (200, 400)
    assert over.json()["error"]["code"] == "context_length_exceeded"


async def test_only_digest_type_and_size_are_ever_shown_of_a_picture(rig, caplog):
    grant = await rig.grant()
    caplog.set_level("DEBUG")
    noisy = png(7, 77, 177, size=(64, 64))
    asked = user("see ", part(noisy))
    assert (await ask(rig, grant["api_key"], asked)).status_code == 200
    refused = await ask(rig, grant["api_key"], {**asked, "role": "assistant"})
    seen = [refused.text, (await trace(rig, grant)).text, caplog.text]
    for path in ("", "/trace", "/page"):
        answer = await rig.ask(
            "GET", f"/swarm/episodes/{grant['episode_id']}{path}", rig.tokens.client
        )
        assert answer.status_code == 200
        seen.append(answer.text)
    assert "image/png" in seen[-1]  # the page names it
    done = await rig.ask(
        "POST", f"/swarm/episodes/{grant['episode_id']}/finish", rig.tokens.client,
        json={"reward": 1.0},
    )  # fmt: skip
    assert done.status_code == 200
    seen.append((await trace(rig, grant)).text)
    assert all(coded(noisy)[40:80] not in text for text in seen)
    (call,) = json.loads(seen[-1])["calls"]
    assert call["messages"][0]["content"][1]["media_type"] == "image/png"
    assert call["messages"][0]["content"][1]["width"] == 64


async def test_a_sampled_image_token_ends_the_answer_and_is_left_out_of_training(rig):
    grant = await rig.grant()
    rig.fleet.latest.script = lambda _request: "4<image>2"
    answer = (await ask(rig, grant["api_key"], user("see ", part(RED)))).json()
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("4", "stop")
    (call,) = (await trace(rig, grant)).json()["calls"]
    assert call["token_mask"] == [True] * (len(call["sampled_ids"]) - 1) + [False]
    again = await ask(
        rig, grant["api_key"], user("see ", part(RED)), choice["message"], user("and?")
    )
    assert again.status_code == 200


BAD = {
    "an address": {"url": "https://example.org/a.png"},
    "a file": {"url": "file:///etc/passwd"},
    "a truncated one": {"url": f"data:image/png;base64,{coded(RED[: len(RED) // 2])}"},
    "a text": {"url": f"data:image/png;base64,{coded(b'hello')}"},
    "a page": {"url": f"data:image/svg+xml;base64,{coded(b'<svg/>')}"},
    "a bomb": {"url": "data:image/png;base64," + coded(RED.replace(b"\0\0\0\x08\0\0\0\6", b"\0\1\0\0\0\1\0\0"))},
    "half of base64": {"url": "data:image/png;base64,AAA"},
    "nothing": {},
    "a list": [],
}  # fmt: skip


@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
async def test_hostile_pictures_are_a_400_with_a_hint_and_nothing_is_sampled(rig, given):
    grant = await rig.grant()
    answer = await ask(
        rig, grant["api_key"], user("see ", {"type": "image_url", "image_url": given})
    )
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["hint"]
    assert error["param"].startswith("messages[0].content[1]")
    assert rig.fleet.latest.sampled == 0


async def test_large_pictures_are_read_beside_the_loop_and_answered_alike(rig):
    grant = await rig.grant()
    large = RED.replace(b"\0\0\0\0IEND", b"\0" * (1 << 19) + b"\0\0\0\0IEND")
    answer = await ask(rig, grant["api_key"], user("see ", part(large)))
    refused = await ask(rig, grant["api_key"], user("see ", part(large[1:])))
    assert (answer.status_code, refused.status_code) == (200, 400)
    (call,) = (await trace(rig, grant)).json()["calls"]
    assert call["messages"][0]["content"][1]["bytes"] == len(large)


async def test_a_bare_prompt_with_the_image_token_is_a_400(rig):
    grant = await rig.grant()
    answer = await rig.ask(
        "POST", "/v1/completions", grant["api_key"], json={"model": "m", "prompt": "see <image>"}
    )
    assert answer.status_code == 400


async def test_an_agent_that_spells_the_image_token_says_a_word(rig):
    grant = await rig.grant()
    key = grant["api_key"]
    answer = await ask(
        rig, key, {"role": "user", "content": "<image> "}, user("<image>", part(RED))
    )
    assert answer.status_code == 200
    (call,) = (await trace(rig, grant)).json()["calls"]
    assert call["guarded"] == 2


async def test_an_engine_that_dies_samples_the_same_picture_again(rig):
    grant = await rig.grant()
    first = rig.fleet.latest
    before = await ask(rig, grant["api_key"], user("see ", part(RED)))
    first.kill()
    await retry_until(lambda: rig.fleet.latest is not first)
    other = await rig.grant()
    after = await ask(rig, other["api_key"], user("see ", part(RED)))
    assert (before.status_code, after.status_code) == (200, 200)
