"""Questions to a worker: repeated until answered, answered once, and only by the one who was asked."""

import asyncio
from typing import Any

from a3r.core.types import WorkerState


async def heartbeat(study: Any, worker: str = "w1") -> dict[str, Any]:
    reply = await study.worker("heartbeat", {"worker_id": worker, "attempts": [], "wait_s": 0})
    return reply.json()


async def test_a_question_goes_out_on_the_heartbeat_until_it_is_answered(study: Any) -> None:
    spec = await study.claimed()
    body = {"kind": "fetch_log", "name": "client", "offset": -10, "limit": 10, "wait_s": 10}
    asked = asyncio.create_task(study.api("POST", f"attempts/{spec.attempt_id}/ask", body))
    commands: list[Any] = []
    while not commands and not asked.done():
        commands = (await heartbeat(study))["commands"]
    assert commands, (await asked).text
    assert (await heartbeat(study))["commands"] == commands
    assert (await heartbeat(study, "w2"))["commands"] == []
    [command] = commands
    assert (command["kind"], command["attempt_id"]) == ("fetch_log", spec.attempt_id)
    assert command["args"]["name"] == "client"
    answer = {"worker_id": "w1", "ok": True, "result": {"data_b64": "aGk="}}
    assert (await study.worker(f"commands/{command['id']}", answer)).status_code == 200
    reply = (await asked).json()
    assert (reply["state"], reply["result"]) == ("done", {"data_b64": "aGk="})
    assert (await heartbeat(study))["commands"] == []


async def test_the_first_answer_stays_and_a_stranger_may_not_answer(study: Any) -> None:
    spec = await study.claimed()
    body = {"kind": "fetch_trace", "episode_id": "e1", "wait_s": 0}
    asked = (await study.api("POST", f"attempts/{spec.attempt_id}/ask", body)).json()
    assert asked["state"] == "open"
    again = (await study.api("POST", f"attempts/{spec.attempt_id}/ask", body)).json()
    assert again["id"] == asked["id"]
    path = f"commands/{asked['id']}"
    stranger = {"worker_id": "w2", "ok": True, "result": {}}
    assert (await study.worker(path, stranger)).status_code == 409
    for ok in (False, True):
        await study.worker(path, {"worker_id": "w1", "ok": ok, "result": {"error": "gone"}})
    assert study.store.command(asked["id"]).state.value == "failed"


async def test_nobody_can_be_asked_about_an_attempt_that_waits(study: Any) -> None:
    study.queue()
    attempt = study.store.attempts(study.campaign_id)[0]
    reply = await study.api("POST", f"attempts/{attempt.id}/ask", {"kind": "fetch_log"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


async def test_a_worker_hears_on_every_heartbeat_what_is_wanted_of_it(study: Any) -> None:
    body = {"worker_id": "w1", "host": "h", "pid": 1, "slots": 1}
    await study.worker("register", body)
    study.store.set_worker_state("w1", WorkerState.REMOVED)
    assert [(await heartbeat(study))["wanted"] for _ in range(2)] == ["removed", "removed"]
    assert (await heartbeat(study, "nobody"))["wanted"] == "active"
