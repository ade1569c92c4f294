import asyncio
from dataclasses import dataclass

import httpx
import pytest
import uvicorn

from swarm.protocol.config import BatchConfig, TrainConfig
from swarm.server.keys import Tokens
from swarm.server.routes.app import create_app
from swarm.server.serve import listening
from swarm.server.service.service import SwarmService
from swarm.testing import ToyFleet, engines, retry_until


@dataclass
class Rig:
    """A real service on a toy engine, its app and shortcuts for asking it."""

    service: SwarmService
    fleet: ToyFleet
    tokens: Tokens
    app: object
    url: str = "http://swarm.test"
    transport: httpx.AsyncBaseTransport | None = None

    def client(self, key="") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        transport = self.transport or httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url=self.url, headers=headers)

    async def ask(self, method, path, key="", **kwargs) -> httpx.Response:
        async with self.client(key) as http:
            return await http.request(method, path, **kwargs)

    async def grant(self, kind="train", key=None, client_id="c1", **kwargs):
        body = {"client_id": client_id, "kind": kind, "task_id": "t1"}
        answer = await self.ask(
            "POST", "/swarm/episodes", key or self.tokens.client, json=body, **kwargs
        )
        assert answer.status_code == 200, answer.text
        return answer.json()


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
async def offline(tmp_path):
    tokens, fleet = Tokens.mint(), engines.fleet()
    service = await SwarmService.open(
        state_dir=tmp_path, engine_factory=fleet, tokens=tokens, resume=False
    )
    yield Rig(service, fleet, tokens, create_app(service, tokens))
    await service.close()


@pytest.fixture
async def rig(offline):
    batch = BatchConfig(tasks=2, repeat=2)
    await offline.service.configure(
        TrainConfig(engine=engines.engine_name(), batch=batch, stop_at_step=3)
    )
    await offline.service.start()
    return offline


@pytest.fixture
async def live(rig):
    """The same over a real port."""
    with listening("127.0.0.1", 0) as sock:
        config = uvicorn.Config(
            rig.app,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        rig.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        rig.transport = httpx.AsyncHTTPTransport()
        task = asyncio.create_task(server._serve(sockets=[sock]))
        await retry_until(lambda: server.started)
        yield rig
        server.should_exit = True
        await task
