"""vLLM servers of the rollout as verl runs them, asked for tokens one request at a time: stream, stop strings, seeds, abort.

One Ray actor a replica; verl's own server and replica do everything that is not sampling.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm import SamplingParams
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

EXTENSION = "swarm.server.engine_verl.vllm_extension.SwarmExtension"
Piece = dict[str, Any]
"""``ids``, ``logprobs``, ``top`` (a list of pairs a token), ``finish`` (None until the end) and ``stop_reason``."""


class SwarmServer(vLLMHttpServer):
    """verl's server with token streams."""

    async def sample(self, request: dict[str, Any]) -> Piece:
        """Sample to the end; see ``stream``. An aborted request answers with what it had sampled."""
        whole: Piece = {"ids": [], "logprobs": [], "top": [], "finish": None, "stop_reason": None}
        async for piece in self.stream(request):
            for name in ("ids", "logprobs", "top"):
                whole[name] += piece[name]
            whole["finish"], whole["stop_reason"] = piece["finish"], piece["stop_reason"]
        return whole

    async def stream(self, request: dict[str, Any]) -> AsyncIterator[Piece]:
        """Sample and yield what is new; ``request`` is of ``vllm_request``. The last piece has ``finish``."""
        lark = request["lark"]
        params = SamplingParams(
            **request["params"],
            structured_outputs=StructuredOutputsParams(grammar=lark) if lark else None,
            output_kind=RequestOutputKind.DELTA,
        )
        finished = False
        prompt = TokensPrompt(prompt_token_ids=request["prompt"])
        async for output in self.engine.generate(prompt, params, request["id"]):
            piece = _piece(output, request["top"])
            finished = piece["finish"] is not None
            yield piece
        if not finished:
            yield {"ids": [], "logprobs": [], "top": [], "finish": "abort", "stop_reason": None}

    async def stop(self, request_id: str) -> None:
        """Abort in vLLM's scheduler; the stream of the request ends. Unknown ids are ignored."""
        await self.engine.abort(request_id)

    async def served_fingerprint(self) -> list[str]:
        """Return a checksum a worker of this replica."""
        return await self.engine.collective_rpc("served_fingerprint")

    def _get_worker_extension_cls(self) -> str:
        return EXTENSION


class SwarmReplica(vLLMReplica):
    """verl's replica with our server class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(SwarmServer)


async def launch(config: Any, group: Any) -> list[SwarmReplica]:
    """Start as many replicas as the group's GPUs hold, on these GPUs; ``config`` is verl's ``actor_rollout_ref``.

    verl's ``LLMServerManager`` does the same and adds a load balancer in a process of its own, which nobody would ask here.
    """
    rollout = config.rollout
    size = (
        rollout.tensor_model_parallel_size
        * rollout.data_parallel_size
        * rollout.pipeline_model_parallel_size
    )
    replicas = [
        SwarmReplica(
            replica_rank=rank,
            config=rollout,
            model_config=config.model,
            gpus_per_node=rollout.n_gpus_per_node,
        )
        for rank in range(group.world_size // size)
    ]
    await asyncio.gather(*(replica.init_hybrid(group) for replica in replicas))
    return replicas


def _piece(output: Any, top: int) -> Piece:
    if not output.outputs:
        return {"ids": [], "logprobs": [], "top": [], "finish": "abort", "stop_reason": None}
    one = output.outputs[0]
    ids = list(one.token_ids)
    table = one.logprobs or []
    logprobs = [entry[token].logprob for token, entry in zip(ids, table, strict=False)]
    largest = [
        sorted(((t, v.logprob) for t, v in entry.items()), key=lambda pair: -pair[1])[:top]
        for entry in table[: len(ids)]
    ]
    finish = one.finish_reason if one.finish_reason in (None, "stop", "length") else "abort"
    return {
        "ids": ids,
        "logprobs": logprobs,
        "top": largest if top else [],
        "finish": finish,
        "stop_reason": one.stop_reason,
    }
