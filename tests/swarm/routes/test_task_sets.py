"""Agreements and shared queues over HTTP: who may, what is answered, what is refused."""

import pytest

from swarm.protocol.states import CollectionPolicy
from swarm.testing import retry_until

TASKS = {"task_ids": ["a", "b", "c"], "epochs": 2}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/swarm/task_sets/math"),
        ("GET", "/swarm/task_sets"),
        ("POST", "/swarm/clients/c1/agree"),
    ],
)
async def test_an_evaluator_neither_agrees_nor_hands_out_tasks(rig, method, path):
    for key in ("", "wrong", rig.tokens.eval):
        answer = await rig.ask(method, path, key, json={})
        assert answer.status_code == (403 if key == rig.tokens.eval else 401)


async def test_a_queue_is_set_told_and_taken_from(rig):
    key = rig.tokens.client
    told = (await rig.ask("PUT", "/swarm/task_sets/math", key, json=TASKS)).json()
    assert (told["size"], told["handed_out"], told["exhausted"]) == (3, 0, False)
    body = {"client_id": "c1", "task_set": "math"}
    grant = (await rig.ask("POST", "/swarm/episodes", key, json=body)).json()
    assert grant["outcome"] == "granted"
    assert grant["task_id"] in TASKS["task_ids"]
    assert (await rig.ask("GET", "/swarm/task_sets", key)).json() == [told | {"handed_out": 1}]
    pool = (await rig.ask("GET", "/swarm/pool", key)).json()
    assert pool["task_ids"] == [f"math/{grant['task_id']}"]
    trace = await rig.ask("GET", f"/swarm/episodes/{grant['episode_id']}", key)
    assert trace.json()["task_id"] == grant["task_id"]


async def test_a_name_with_odd_letters_is_one_task_set(rig):
    key = rig.tokens.client
    path = "/swarm/task_sets/h%C3%A4rte%20f%C3%A4lle"
    assert (await rig.ask("PUT", path, key, json=TASKS)).json()["name"] == "härte fälle"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "task_ids"),
        ({"task_ids": []}, "task_ids"),
        ({"task_ids": ["a", "a"]}, "occurs twice"),
        ({"task_ids": ["a"], "epochs": 0}, "epochs"),
        ({"task_ids": [1]}, "task_ids"),
    ],
)
async def test_a_queue_that_cannot_be_is_refused_and_the_old_one_stays(rig, body, text):
    key = rig.tokens.client
    await rig.ask("PUT", "/swarm/task_sets/math", key, json=TASKS)
    answer = await rig.ask("PUT", "/swarm/task_sets/math", key, json=body)
    assert answer.status_code == 400
    assert text in answer.json()["error"]["message"]
    assert (await rig.ask("GET", "/swarm/task_sets", key)).json()[0]["size"] == 3


async def test_a_request_for_a_queue_that_is_not_there_is_told_how_to_make_it(rig):
    body = {"client_id": "c1", "task_set": "none"}
    answer = await rig.ask("POST", "/swarm/episodes", rig.tokens.client, json=body)
    assert answer.status_code == 404
    assert "PUT /swarm/task_sets/none" in answer.json()["error"]["hint"]
    eval_body = body | {"kind": "eval", "client_id": "judge"}
    answer = await rig.ask("POST", "/swarm/episodes", rig.tokens.eval, json=eval_body)
    assert answer.status_code == 400


async def test_an_agreement_is_answered_and_a_repeat_gets_the_same(rig):
    key = rig.tokens.client
    await rig.service.stop()
    config = rig.service.config
    batch = config.batch.model_copy(update={"policy": CollectionPolicy.C5})
    await rig.service.configure(config.model_copy(update={"batch": batch}))
    await rig.service.start()
    await rig.ask("POST", "/swarm/clients", key, json={"client_id": "c1"})
    for reward in (0.0, 1.0):
        grant = await rig.grant()
        headers = {"authorization": f"Bearer {grant['api_key']}"}
        call = {"model": "m", "messages": [{"role": "user", "content": "Compute 1+1."}]}
        async with rig.client() as http:
            assert (
                await http.post("/v1/chat/completions", json=call, headers=headers)
            ).status_code == 200
        path = f"/swarm/episodes/{grant['episode_id']}/finish"
        await rig.ask("POST", path, key, json={"reward": reward})
    first = await rig.ask("POST", "/swarm/clients/c1/agree", key, json={"for_step": 0})
    assert first.json() == {"step": 0, "agreed": ["c1"], "missing": [], "fires": True}
    await retry_until(lambda: rig.service.status().step == 1)
    again = await rig.ask("POST", "/swarm/clients/c1/agree", key, json={"for_step": 0})
    assert again.json() == first.json()
    unknown = await rig.ask("POST", "/swarm/clients/c9/agree", key, json={"for_step": 1})
    assert unknown.status_code == 404
    future = await rig.ask("POST", "/swarm/clients/c1/agree", key, json={"for_step": 9})
    assert future.status_code == 409
    assert future.json()["error"]["details"] == {"step": 1}


async def test_nobody_agrees_for_a_client_of_another_token(rig):
    await rig.ask("POST", "/swarm/clients", rig.tokens.eval, json={"client_id": "judge"})
    answer = await rig.ask(
        "POST", "/swarm/clients/judge/agree", rig.tokens.client, json={"for_step": 0}
    )
    assert answer.status_code == 403
