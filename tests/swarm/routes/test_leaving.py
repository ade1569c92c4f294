"""Clients that leave while they are answered, and parallel streams: over real HTTP, in every dialect."""

import asyncio
import json

import httpx
import pytest

from swarm.testing import retry_until

USER = [{"role": "user", "content": "Compute 1+2."}]
ROUTES = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "1+2="},
    "/v1/responses": {"input": "Compute 1+2."},
    "/v1/messages": {"messages": USER, "max_tokens": 64},
}
TEXT = "one two three four"


def over_http(rig, grant):
    headers = {"authorization": f"Bearer {grant['api_key']}"}
    return httpx.AsyncClient(base_url=rig.url, headers=headers, timeout=30)


async def calls_of(rig, grant):
    path = f"/swarm/episodes/{grant['episode_id']}/trace"
    return (await rig.ask("GET", path, rig.tokens.client)).json()["calls"]


@pytest.mark.parametrize("path", ROUTES)
async def test_a_client_that_leaves_a_whole_answer_ends_the_generation_and_marks_the_call(
    live, path
):
    engine = live.fleet.latest
    engine.script, engine.hold, engine.before_abort = lambda _request: TEXT, asyncio.Event(), 2
    grant = await live.grant()
    async with over_http(live, grant) as http:
        call = asyncio.create_task(http.post(path, json=ROUTES[path]))
        await retry_until(lambda: engine.generating == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await retry_until(lambda: engine.generating == 0)
    (left,) = await calls_of(live, grant)
    assert left["finish_reason"] == "abort"
    assert len(left["sampled_ids"]) == 2


@pytest.mark.parametrize("path", ROUTES)
async def test_a_client_that_leaves_in_a_stream_ends_the_generation_and_marks_the_call(live, path):
    engine = live.fleet.latest
    engine.script, engine.hold, engine.hold_after = lambda _request: TEXT, asyncio.Event(), 4
    grant = await live.grant()
    async with over_http(live, grant) as http:
        async with http.stream("POST", path, json=ROUTES[path] | {"stream": True}) as answer:
            async for line in answer.aiter_lines():
                if "on" in line:  # of "one": something was sampled and sent
                    break
        await retry_until(lambda: engine.generating == 0)
    (left,) = await calls_of(live, grant)
    assert left["finish_reason"] == "abort"
    assert len(left["sampled_ids"]) == 4
    # Such tokens are accounted for, and never trained.
    engine.hold = None
    assert (await live.ask("POST", path, grant["api_key"], json=ROUTES[path])).status_code == 200
    assert [c["finish_reason"] for c in await calls_of(live, grant)] == ["abort", "stop"]


@pytest.mark.parametrize("path", ROUTES)
async def test_streams_at_the_same_time_have_names_of_their_own(live, path):
    grant = await live.grant()
    async with over_http(live, grant) as http:
        asked = [http.post(path, json=ROUTES[path] | {"stream": True}) for _ in range(6)]
        names = [_names(answer.text) for answer in await asyncio.gather(*asked)]
    assert all(len(found) == 1 for found in names)
    assert len(set.union(*names)) == 6


def _names(stream):
    """Ids of the answer itself that the events of a stream carry."""
    found = set()
    for line in stream.splitlines():
        if not line.startswith("data: {"):
            continue
        data = json.loads(line.removeprefix("data: "))
        whole = data.get("response") or data.get("message") or data
        found |= {whole["id"]} if "id" in whole else set()
    return found


async def test_a_stored_response_of_parallel_streams_is_continued_by_its_own_name(live):
    live.fleet.latest.script = lambda request: f"said {request.request_id.rpartition('.')[2]}"
    grant = await live.grant()
    body = {"input": "hi", "stream": True}
    async with over_http(live, grant) as http:
        answers = await asyncio.gather(*(http.post("/v1/responses", json=body) for _ in range(3)))
        for answer in answers:
            (name,) = _names(answer.text)
            stored = (await http.get(f"/v1/responses/{name}")).json()
            (item,) = stored["output"]
            assert item["content"][0]["text"] == f"said {name.rpartition('.')[2]}"


@pytest.mark.parametrize("prompt", ["1+2=", [21, 22]])
async def test_an_echo_repeats_the_prompt_before_the_answer_whole_and_streamed(live, prompt):
    live.fleet.latest.script = lambda _request: "3"
    grant = await live.grant()
    body = {"prompt": prompt, "echo": True, "n": 2}
    async with over_http(live, grant) as http:
        whole = (await http.post("/v1/completions", json=body)).json()
        streamed = (await http.post("/v1/completions", json=body | {"stream": True})).text
        refused = await http.post("/v1/completions", json=body | {"logprobs": 1})
    text = prompt if isinstance(prompt, str) else live.service._core.tokenizer.decode(prompt)
    assert [choice["text"] for choice in whole["choices"]] == [f"{text}3"] * 2
    texts = ["", ""]
    for line in streamed.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                texts[choice["index"]] += choice["text"]
    assert texts == [f"{text}3"] * 2
    assert refused.json()["error"]["code"] == "unsupported_parameter"
    assert [call["reply"]["content"] for call in await calls_of(live, grant)] == ["3"] * 4
