"""SGLang servers of the rollout as verl runs them. Never run here: SGLang has no build for a CPU (see docs/gpu-untested.md).

Tokens come whole, through verl's own ``generate``: streams arrive in one piece. What SGLang cannot do as the front checks it
(grammars) or verl's ``generate`` does not return (alternatives of a token) is refused by ``sglang_request``.
"""

# pyright: reportMissingImports=false
# verl and SGLang live in an environment of their own.

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
from verl.workers.rollout.sglang_rollout.async_sglang_server import SGLangHttpServer

from swarm.server.engine_verl.leftovers import Process, descendants
from swarm.server.engine_verl.pictures import decoded_all
from swarm.server.engine_verl.resend import Piece
from swarm.server.engine_verl.sampling import whole_piece


class SglangServer(SGLangHttpServer):
    """verl's server, asked as ``vllm_server.SwarmServer`` is."""

    async def sample(self, request: dict[str, Any]) -> Piece:
        """Sample to the end; ``request`` is of ``sglang_request``."""
        params = dict(request["params"])
        images = await asyncio.to_thread(decoded_all, request["images"]) or None
        told = await self.generate(request["prompt"], params, request["id"], image_data=images)
        return whole_piece(
            told.token_ids, told.log_probs or [], told.stop_reason, version=self.global_steps or 0
        )

    async def stream(self, request: dict[str, Any]) -> AsyncIterator[Piece]:
        """Sample to the end and yield one piece."""
        yield await self.sample(request)

    async def stop(self, request_id: str) -> None:
        """Abort in SGLang's scheduler. Unknown ids are ignored."""
        self.tokenizer_manager.abort_request(rid=request_id)

    async def inside(self) -> list[str]:
        """Return the requests that SGLang holds now."""
        return list(self.tokenizer_manager.rid_to_state)

    async def ended(self) -> str:
        """Never return: SGLang ends its whole server when one of its processes dies, and this call fails then."""
        await asyncio.Event().wait()
        return ""

    async def processes(self) -> tuple[str, list[Process]]:
        """Return the Ray id of this node, and this process with all below it."""
        return ray.get_runtime_context().get_node_id(), descendants()

    async def served_fingerprint(self) -> list[str]:
        """Return the version that verl's adapter noted once the weights were in; SGLang names no checksum."""
        return [f"version {self.global_steps}"]
