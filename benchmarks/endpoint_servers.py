"""Server processes for ``endpoint.py``: ``swarm`` with an engine that answers at once, and ``bare``, a Starlette route that returns given bytes.

Both run under uvicorn with the settings of ``swarm serve``. Usage: ``endpoint_servers.py swarm FOLDER`` (which gets ready.json and
tokens.json) or ``endpoint_servers.py bare PORT_FILE BYTES_FILE MEDIA_TYPE``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from swarm.protocol.config import TrainConfig
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest
from swarm.server.serve import KEEP_ALIVE_S, listening, serve
from swarm.server.serve_options import ServeOptions
from swarm.testing import ToyEngine

ANSWER = "The answer is 42."
"""Text of every answer, token by token with the model's own tokenizer (17 tokens and the end token)."""
CONFIG = {
    "engine": "toy",
    "batch": {"tasks": 1_000_000, "repeat": 4},
    "episode": {"max_calls": 1_000_000, "idle_deadline_s": 36_000, "total_deadline_s": 36_000},
}


class InstantEngine(ToyEngine):
    """Answers every request with the same ids at once: what is measured is everything but an engine."""

    async def boot(self, config: TrainConfig, *, checkpoint: str | None = None) -> EngineInfo:
        """As the toy engine; the answer is encoded once."""
        info = await super().boot(config, checkpoint=checkpoint)
        assert self._tokenizer is not None
        self._answer = [*self._tokenizer.encode(ANSWER, add_special_tokens=False).ids, self._eos]
        return info

    async def generate(
        self, request: GenerateRequest, *, on_late: Callable[[Chunk | None], None] | None = None
    ) -> Chunk:
        """The whole answer."""
        ids = self._answer
        return Chunk(request.request_id, list(ids), [-0.5] * len(ids), "stop")

    async def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """The answer token by token, one a turn of the loop."""
        last = len(self._answer) - 1
        for i, token in enumerate(self._answer):
            await asyncio.sleep(0)
            yield Chunk(request.request_id, [token], [-0.5], "stop" if i == last else None)


def swarm(folder: Path) -> None:
    """Serve until SIGTERM."""
    config = TrainConfig.model_validate(CONFIG)
    options = ServeOptions(
        state_dir=folder, config=config, start=True, ready_file=folder / "ready.json"
    )
    serve(options, lambda _name: InstantEngine())


def bare(port_file: Path, body: bytes, media_type: str) -> None:
    """Serve ``body`` for every chat call, events one a turn of the loop; the request is read and nothing is done with it."""

    events = [event + b"\n\n" for event in body.split(b"\n\n") if event]

    async def pieces() -> AsyncIterator[bytes]:
        for event in events:
            await asyncio.sleep(0)
            yield event

    async def answer(request: Request) -> Response:
        await request.body()
        if media_type == "text/event-stream":
            return StreamingResponse(pieces(), media_type=media_type)
        return Response(body, media_type=media_type)

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    settings: dict[str, Any] = {
        "loop": "none",
        "http": "httptools",
        "ws": "none",
        "lifespan": "off",
    }
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        **settings,
    )
    with listening("127.0.0.1", 0) as sock:
        port_file.write_text(str(sock.getsockname()[1]))
        uvloop.run(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    if sys.argv[1] == "swarm":
        swarm(Path(sys.argv[2]))
    else:
        bare(Path(sys.argv[2]), Path(sys.argv[3]).read_bytes(), sys.argv[4])
