"""Sampling through the rollout replicas, from a thread with an event loop of its own: requests in, chunks into a queue.

The child's loop calls ``submit``, ``abort`` and ``collect``; nothing of it blocks on Ray.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from swarm.server.constraints import Grammars
from swarm.server.engine_verl.balance import Balance
from swarm.server.engine_verl.sampling import vllm_request
from swarm.server.ports import Chunk, GenerateRequest

logger = logging.getLogger(__name__)

WAIT_S = 0.005
"""How long ``collect`` waits for the first chunk."""
ResultT = TypeVar("ResultT")


class Rollout:
    """Open requests of one engine. ``replicas`` are handles of ``SwarmServer`` actors."""

    def __init__(self, replicas: list[Any], grammars: Grammars) -> None:
        self._replicas = replicas
        self._grammars = grammars
        self._balance = Balance(len(replicas))
        self._open: dict[str, int] = {}
        """Request -> replica; changed in the loop's thread only."""
        self._aborted: set[str] = set()
        self._waiting: set[str] = set()
        """Requests that the child has not seen the end of; changed by the child's thread only."""
        self._chunks: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        self.lost = ""
        """Not empty: a replica died, and why. Its requests ended as aborted."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollout", daemon=True)
        self._thread.start()

    @property
    def load(self) -> int:
        """Requests that are open."""
        return len(self._waiting)

    def submit(self, request: GenerateRequest) -> None:
        """Send a request to the replica of its episode."""
        self._waiting.add(request.request_id)
        self._run(self._sample(request))

    def abort(self, request_id: str) -> None:
        """Stop a request in its replica's scheduler; its last chunk comes through ``collect``. Unknown ids are ignored."""
        if request_id in self._waiting:
            self._run(self._abort(request_id))

    def collect(self) -> list[Chunk]:
        """Return the chunks that came, waiting a moment for the first."""
        chunks: list[Chunk] = []
        try:
            chunks.append(self._chunks.get(timeout=WAIT_S))
            while True:
                chunks.append(self._chunks.get_nowait())
        except queue.Empty:
            pass
        self._waiting -= {chunk.request_id for chunk in chunks if chunk.finish is not None}
        return chunks

    def served_fingerprints(self) -> list[str]:
        """Return what each worker of each replica says of the weights it serves."""

        async def ask() -> list[list[str]]:
            return await asyncio.gather(*(r.served_fingerprint.remote() for r in self._replicas))

        return [name for names in self._run(ask()).result() for name in names]

    def close(self) -> None:
        """End the thread; open requests are forgotten."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # -- in the loop's thread -------------------------------------------------------------------------------

    async def _sample(self, request: GenerateRequest) -> None:
        name = request.request_id
        replica = self._open[name] = self._balance.take(request.affinity)
        server = self._replicas[replica]
        try:
            if request.stream:
                await self._stream(server, request)
            else:
                piece = await server.sample.remote(self._as_sent(request))
                self._put(name, piece)
        except Exception as error:
            logger.exception("A rollout replica failed.")
            self.lost = f"rollout replica {replica} failed: {error}"
            self._chunks.put(Chunk(name, [], [], "abort"))
        finally:
            self._open.pop(name, None)
            self._aborted.discard(name)
            self._balance.give(replica)

    async def _stream(self, server: Any, request: GenerateRequest) -> None:
        pieces = server.stream.options(num_returns="streaming").remote(self._as_sent(request))
        async for piece in pieces:
            self._put(request.request_id, await piece)

    def _as_sent(self, request: GenerateRequest) -> dict[str, Any]:
        grammar = request.params.grammar
        return vllm_request(request, lark=self._grammars.lark(grammar) if grammar else "")

    async def _abort(self, name: str) -> None:
        replica = self._open.get(name)
        if replica is not None and name not in self._aborted:
            self._aborted.add(name)
            await self._replicas[replica].stop.remote(name)

    def _put(self, name: str, piece: dict[str, Any]) -> None:
        self._chunks.put(
            Chunk(
                name,
                piece["ids"],
                piece["logprobs"],
                piece["finish"],
                piece["top"],
                stop_reason=piece["stop_reason"],
            )
        )

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
