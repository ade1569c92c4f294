"""The short way in answers like the long one: methods, patterns, headers, and errors in each dialect's own words."""

from __future__ import annotations

import pytest

from swarm.server.routes.hot import QuickHeaders

LONG = [{"role": "user", "content": "word " * 2000}]
CALLS = {
    "/chat/completions": {"messages": LONG},
    "/messages": {"messages": LONG, "max_tokens": 8},
    "/completions": {"prompt": "word " * 2000},
    "/responses": {"input": "word " * 2000},
}


@pytest.mark.parametrize("path", CALLS)
async def test_a_stream_that_is_refused_before_it_begins_reads_like_a_refused_call(
    rig, path: str
) -> None:
    key = (await rig.grant())["api_key"]
    body = {"model": "swarm", **CALLS[path]}
    whole = await rig.ask("POST", f"/v1{path}", key, json=body)
    streamed = await rig.ask("POST", f"/v1{path}", key, json=body | {"stream": True})
    assert whole.status_code == streamed.status_code == 400
    said, again = whole.json(), streamed.json()
    said.pop("request_id", None), again.pop("request_id", None)
    assert again == said
    assert streamed.headers["x-should-retry"] == "false"


async def test_another_method_and_an_unknown_path_get_the_usual_answers(rig) -> None:
    assert (await rig.ask("GET", "/v1/chat/completions")).status_code == 405
    assert (await rig.ask("POST", "/v1/chat/completionz")).status_code == 404
    assert (await rig.ask("GET", "/health")).json() == {"status": "ok"}


async def test_a_route_is_found_by_its_pattern(rig) -> None:
    grant = await rig.grant()
    body = {"messages": [{"role": "user", "content": "1"}]}
    assert (
        await rig.ask("POST", f"/e/{grant['api_key']}/v1/chat/completions", json=body)
    ).status_code == 200
    path = f"/swarm/episodes/{grant['episode_id']}/finish"
    done = await rig.ask("POST", path, rig.tokens.client, json={"reward": 1.0})
    assert done.json()["accepted"] is True


def test_of_a_header_that_was_sent_twice_the_first_counts() -> None:
    headers = QuickHeaders({"headers": [(b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"\xe9")]})
    assert (headers.get("X-A"), headers.get("x-b"), headers.get("x-c")) == ("1", "é", None)
    assert headers.get("x-c", "none") == "none"
    assert headers["x-a"] == headers.get("x-a")
    assert headers.getlist("x-a") == ["1", "2"]
