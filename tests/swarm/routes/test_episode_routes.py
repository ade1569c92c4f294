"""Agents, reservations, and the two halves of a finish over HTTP."""

import pytest

pytestmark = pytest.mark.every_engine

AGENT_TURN = {"messages": [{"role": "user", "content": "1+2="}], "max_tokens": 4}


def path(grant, what):
    return f"/swarm/episodes/{grant['episode_id']}/{what}"


async def test_a_key_per_agent_speaks_as_that_agent_by_header_and_by_url(rig):
    grant = await rig.grant()
    client = rig.tokens.client
    key = await rig.ask("POST", path(grant, "agents"), client, json={"agent": "seer"})
    assert key.status_code == 200, key.text
    assert key.json()["base_url"] == f"{rig.url}/v1"
    seer = key.json()["api_key"]
    answer = await rig.ask("POST", "/v1/chat/completions", seer, json=AGENT_TURN)
    assert answer.status_code == 200, answer.text
    by_url = await rig.ask("POST", f"/e/{seer}/v1/chat/completions", json=AGENT_TURN)
    assert by_url.status_code == 200
    stream = await rig.ask("POST", "/v1/chat/completions", seer, json=AGENT_TURN | {"stream": True})
    assert stream.text.endswith("data: [DONE]\n\n")
    await rig.ask("POST", "/v1/chat/completions", grant["api_key"], json=AGENT_TURN)
    trace = (await rig.ask("GET", path(grant, "trace"), client)).json()
    assert [call["agent"] for call in trace["calls"]] == ["seer", "seer", "seer", ""]
    assert trace["agents"] == {"seer": True}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"agent": ""}, 400),
        ({"agent": "a b"}, 400),
        ({"agent": "x" * 65}, 400),
        ({}, 400),
        ({"agent": "seer", "train": False}, 409),
    ],
)
async def test_a_strange_agent_or_another_word_on_it_is_refused(rig, body, status):
    grant = await rig.grant()
    client = rig.tokens.client
    await rig.ask("POST", path(grant, "agents"), client, json={"agent": "seer"})
    answer = await rig.ask("POST", path(grant, "agents"), client, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["hint"]


async def test_prepare_commit_and_their_repeats(rig):
    grant = await rig.grant()
    client = rig.tokens.client
    early = await rig.ask("POST", path(grant, "commit"), client)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "wrong_state")
    wrong = await rig.ask("POST", path(grant, "prepare"), client, content=b'{"reward": NaN}')
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "reward_not_finite")
    for _ in range(2):
        promise = await rig.ask("POST", path(grant, "prepare"), client, json={"reward": 1.0})
        assert promise.json()["prepared"] is True
        assert 0 < promise.json()["commit_within_s"] <= 30
    call = await rig.ask("POST", "/v1/chat/completions", grant["api_key"], json=AGENT_TURN)
    assert (call.status_code, call.headers["x-should-retry"]) == (410, "false")
    for _ in range(2):
        done = await rig.ask("POST", path(grant, "commit"), client)
        assert (done.json()["accepted"], done.json()["state"]) == (True, "finished")


async def test_tokens_that_do_not_fit_are_answered_422(rig):
    grant = await rig.grant()
    tokens = [{"call_index": 3, "mask": [True]}]
    answer = await rig.ask(
        "POST", path(grant, "finish"), rig.tokens.client, json={"reward": 1.0, "tokens": tokens}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "tokens_invalid")


async def test_a_reservation_is_confirmed_under_the_address_that_was_dialled(rig):
    body = {"client_id": "c1", "task_id": "t1", "reserve_s": 20}
    client = rig.tokens.client
    grant = (await rig.ask("POST", "/swarm/episodes", client, json=body)).json()
    headers = {"host": "tunnel.example:9", "authorization": f"Bearer {client}"}
    for _ in range(2):
        kept = await rig.ask("POST", path(grant, "confirm"), headers=headers)
        assert kept.json()["base_url"] == "http://tunnel.example:9/v1"
        assert kept.json()["api_key"] == grant["api_key"]
    await rig.ask("POST", path(grant, "abort"), client, json={"reason": "no"})
    late = await rig.ask("POST", path(grant, "confirm"), client)
    assert (late.status_code, late.json()["error"]["code"]) == (410, "episode_gone")


@pytest.mark.parametrize("what", ["agents", "prepare", "commit", "confirm"])
async def test_only_the_owner_and_the_admin_touch_an_episode(rig, what):
    client, eval_, admin = rig.tokens.client, rig.tokens.eval, rig.tokens.admin
    train = await rig.grant(key=client, client_id="trainer")
    held_out = await rig.grant(kind="eval", key=eval_, client_id="evaluator")
    bodies = {"agents": {"agent": "a"}, "prepare": {"reward": 1.0}}
    body = bodies.get(what, {})

    async def status(grant, key):
        return (await rig.ask("POST", path(grant, what), key, json=body)).status_code

    assert await status(train, "") == 401
    assert await status(train, "wrong") == 401
    assert await status(train, eval_) == 403
    assert await status(held_out, client) == 403
    fine = 409 if what == "commit" else 200
    assert await status(train, admin) == fine
    assert await status(train, client) == fine
    assert await status(held_out, eval_) == fine
    missing = await rig.ask("POST", f"/swarm/episodes/ep-none/{what}", client, json=body)
    assert missing.status_code == 404
