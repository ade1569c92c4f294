"""Traces and pages of an episode in which an agent printed its environment."""

import pytest

from swarm.protocol.config import BatchConfig, TrainConfig
from swarm.server.keys import Tokens
from swarm.server.redaction import HIDDEN, Redactor
from swarm.server.routes.app import create_app
from swarm.server.service.service import SwarmService
from swarm.testing import ToyFleet

SECRET = "s3cr3t-s3cr3t-s3cr3t"


@pytest.fixture
async def rig(tmp_path, offline):
    tokens, fleet = Tokens.mint(), ToyFleet()
    service = await SwarmService.open(
        state_dir=tmp_path / "hiding",
        engine_factory=fleet,
        tokens=tokens,
        redactor=Redactor.of_server(tokens, {"DB_PASS": SECRET}),
    )
    await service.configure(TrainConfig(engine="toy", batch=BatchConfig(tasks=2, repeat=2)))
    await service.start()
    yield type(offline)(service, fleet, tokens, create_app(service, tokens))
    await service.close()


async def test_a_trace_and_a_page_hide_secrets_and_the_model_still_saw_them(rig):
    rig.fleet.latest.script = lambda _request: f"it is {SECRET}"
    grant = await rig.grant()
    body = {
        "messages": [{"role": "user", "content": f"env: DB_PASS={SECRET} and {grant['api_key']}"}],
        "metadata": {"DB_PASS": SECRET},
    }
    path = f"/swarm/episodes/{grant['episode_id']}"
    answer = await rig.ask("POST", "/v1/chat/completions", grant["api_key"], json=body)
    assert answer.json()["choices"][0]["message"]["content"] == f"it is {SECRET}"
    for finished in (False, True):
        if finished:
            await rig.ask("POST", f"{path}/abort", rig.tokens.client, json={"reason": SECRET})
        trace = await rig.ask("GET", f"{path}/trace", rig.tokens.client)
        page = await rig.ask("GET", f"{path}/page", rig.tokens.client, params={"whole": True})
        for shown in (trace, page):
            assert shown.status_code == 200
            assert SECRET not in shown.text
            assert grant["api_key"] not in shown.text
            assert HIDDEN in shown.text
        (call,) = trace.json()["calls"]
        assert call["messages"][0]["content"].startswith(f"env: DB_PASS={HIDDEN}")
        assert call["requested"]["metadata"]["DB_PASS"] == HIDDEN
    tokenizer = rig.service._core.tokenizer
    assert SECRET in tokenizer.decode(call["prompt_ids"])
