"""The toy engine as a real child process, for proofs that kill it: ``EngineHost("swarm.testing.toy_child")``.

The same loop, wire and process as the torch engine's; only the weights are a hash. Starts in a third of a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from swarm.protocol.config import TrainConfig
from swarm.server.engine.child import main
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult
from swarm.server.train.slices import Slices
from swarm.testing.toy_engine import ToyEngine

if TYPE_CHECKING:
    from swarm.server.engine.torch_engine import TorchEngine
    from swarm.server.engine.wire import Boot


class ToyChild:
    """A ``ToyEngine`` behind the synchronous interface that the child's loop drives."""

    def __init__(self, config: TrainConfig, checkpoint: str | None) -> None:
        self._loop = asyncio.new_event_loop()
        self._engine = ToyEngine()
        self._info = self._do(self._engine.boot(config, checkpoint=checkpoint))
        self._waiting: dict[str, GenerateRequest] = {}

    def _do(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    @property
    def busy(self) -> bool:
        """Whether a request waits for a tick."""
        return bool(self._waiting)

    @property
    def load(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def info(self) -> EngineInfo:
        """What was booted."""
        return self._info

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request for the next tick."""
        self._waiting[request.request_id] = request

    def tick(self) -> list[Chunk]:
        """Answer everything that waits, streams token by token."""
        requests, self._waiting = list(self._waiting.values()), {}
        return [chunk for request in requests for chunk in self._do(self._answer(request))]

    async def _answer(self, request: GenerateRequest) -> list[Chunk]:
        if request.stream:
            return [chunk async for chunk in self._engine.stream(request)]
        return [await self._engine.generate(request)]

    def abort(self, request_id: str) -> list[Chunk]:
        """Answer a waiting request with nothing; unknown ids are ignored."""
        if self._waiting.pop(request_id, None) is None:
            return []
        return [Chunk(request_id, [], [], "abort")]

    def update(self, batch: TrainBatch) -> Slices[TrainResult]:
        """Move the hash, in two pieces."""
        yield
        return self._do(self._engine.train(batch))

    def save(self, folder: str) -> dict[str, Any]:
        """Write the hash."""
        return self._do(self._engine.save(folder))


def boot(message: Boot) -> TorchEngine:
    """Make the engine that a Boot message asks for."""
    config = TrainConfig.model_validate_json(message.config_json)
    return cast("TorchEngine", ToyChild(config, message.checkpoint))


if __name__ == "__main__":
    main(boot)
