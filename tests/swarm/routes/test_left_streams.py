import pytest

from swarm.testing import retry_until

CHAT = "/v1/chat/completions"


async def play(live, task, reward, *, leave):
    """One episode with one streamed call, of which only the beginning is read when ``leave``."""
    asked = {"client_id": "c1", "kind": "train", "task_id": task}
    granted = await live.ask("POST", "/swarm/episodes", live.tokens.client, json=asked)
    grant = granted.json()
    body = {
        "messages": [{"role": "user", "content": f"Compute {task}."}],
        "stream": True,
        "max_tokens": 200,
    }
    async with (
        live.client(grant["api_key"]) as http,
        http.stream("POST", CHAT, json=body, timeout=120) as answer,
    ):
        async for _ in answer.aiter_lines():
            if leave:
                break
    path = f"/swarm/episodes/{grant['episode_id']}"
    await live.ask("POST", f"{path}/finish", live.tokens.client, json={"reward": reward})
    return path


@pytest.mark.every_engine
async def test_a_step_whose_last_stream_was_left_trains_and_the_server_goes_on(live):
    plan = [("1+2", 0.0), ("1+2", 1.0), ("3+4", 1.0), ("3+4", 0.0)]
    paths = [
        await play(live, task, reward, leave=i == len(plan) - 1)
        for i, (task, reward) in enumerate(plan)
    ]
    status = live.service.status
    await retry_until(lambda: status().step == 1 and status().state == "ROLLING", timeout_s=120)
    (metrics,) = live.service.metrics(0)
    assert (metrics.groups, metrics.updated, status().failure) == (2, True, None)
    trace = (await live.ask("GET", f"{paths[-1]}/trace", live.tokens.client)).json()
    assert trace["state"] == "finished"
    again = await play(live, "5+6", 1.0, leave=False)
    assert (await live.ask("GET", again, live.tokens.client)).json()["step"] == 1
