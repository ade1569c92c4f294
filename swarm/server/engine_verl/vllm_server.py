"""vLLM servers of the rollout as verl runs them, asked for tokens one request at a time: stream, stop strings, seeds, abort.

One Ray actor a replica (and node); verl's own server does everything that is not sampling.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm import SamplingParams
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from swarm.server.engine_verl.leftovers import Process, descendants
from swarm.server.engine_verl.pictures import (
    PromptChanged,
    UnreadablePicture,
    decoded_all,
    is_expanded,
)
from swarm.server.engine_verl.resend import BY_TOKEN, Piece
from swarm.server.model_files import IMAGE_TOKEN_NAMES, image_tokens

EXTENSION = "swarm.server.engine_verl.vllm_extension.SwarmExtension"
LOOK_S = 0.5
"""Between two looks at whether vLLM's engine lives."""
SHORT_S = 0.001
WORDS = 500
"""Characters of a long error that are told."""


class SwarmServer(vLLMHttpServer):
    """verl's server with token streams, and with requests that outlive a change of weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sampling: set[str] = set()
        self._stopping: set[str] = set()

    async def sample(self, request: dict[str, Any]) -> Piece:
        """Sample to the end; see ``stream``. An aborted request answers with what it had sampled."""
        whole: Piece = {name: [] for name in BY_TOKEN} | {"finish": None, "stop_reason": None}
        async for piece in self.stream(request):
            for name in BY_TOKEN:
                whole[name] += piece[name]
            whole["finish"], whole["stop_reason"] = piece["finish"], piece["stop_reason"]
        return whole

    async def stream(self, request: dict[str, Any]) -> AsyncIterator[Piece]:
        """Sample and yield what is new; ``request`` is of ``vllm_request``. The last piece has ``finish``."""
        name, finished = request["id"], False
        self._sampling.add(name)
        try:
            prompt = await _prompt(request)
            async for output in self._outputs(prompt, request):
                piece = _piece(output, request["top"], self.global_steps)
                finished = piece["finish"] is not None
                if name in self._stopping and not finished:
                    # ``stop`` came before vLLM knew the request.
                    await self.engine.abort(name)
                yield piece
        finally:
            self._sampling.discard(name)
            self._stopping.discard(name)
        if not finished:
            yield {n: [] for n in BY_TOKEN} | {"finish": "abort", "stop_reason": None}

    async def _outputs(self, prompt: TokensPrompt, request: dict[str, Any]) -> AsyncIterator[Any]:
        unread = bool(request["images"])
        try:
            async for output in self.engine.generate(prompt, _params(request), request["id"]):
                if unread:
                    await self._check_prompt(request, output)
                    unread = False
                yield output
        except ValueError as error:
            # vLLM's word for a picture that the model's processor does not take; it comes before any token.
            if not request["images"]:
                raise
            raise UnreadablePicture(str(error)[-WORDS:]) from error

    async def _check_prompt(self, request: dict[str, Any], output: Any) -> None:
        """Where vLLM runs a model in transformers' code it reads a prompt with pictures as text: tokens may come back as others."""
        config = self.model_config.hf_config
        token = image_tokens({name: getattr(config, name, None) for name in IMAGE_TOKEN_NAMES})[0]
        if not is_expanded(request["prompt"], output.prompt_token_ids, token):
            await self.engine.abort(request["id"])
            msg = "vLLM tokenised a prompt with pictures anew, and it became another one"
            raise PromptChanged(msg)

    async def stop(self, request_id: str) -> None:
        """Abort in vLLM's scheduler; the stream of the request ends. Unknown ids are ignored."""
        if request_id in self._sampling:
            self._stopping.add(request_id)
            await self.engine.abort(request_id)

    async def inside(self) -> list[str]:
        """Return the requests that vLLM holds now."""
        return [s.external_req_id for s in self.engine.output_processor.request_states.values()]

    async def hold(self) -> None:
        """Stop between two tokens, keep every request and forget what was computed with these weights: KV and prefix caches.

        Returns once every token sampled so far is told, with the version that it was sampled under. ``resume_engine_generation``
        goes on; the kept requests' KV is computed anew, with the weights that are there then.
        """
        await self.engine.pause_generation(mode="keep", clear_cache=True)
        while self._unread():  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(SHORT_S)

    async def ended(self) -> str:
        """Wait until vLLM's engine dies and say so; a call that outlives the server fails with it."""
        while not self.engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(LOOK_S)
        return "vLLM's engine process ended"

    async def processes(self) -> tuple[str, list[Process]]:
        """Return the Ray id of this node, and this process with all below it."""
        return ray.get_runtime_context().get_node_id(), descendants()

    async def served_fingerprint(self) -> list[str]:
        """Return a checksum a worker of this replica."""
        return await self.engine.collective_rpc("served_fingerprint")

    def _get_worker_extension_cls(self) -> str:
        return EXTENSION

    def _unread(self) -> bool:
        """Whether vLLM sampled tokens that no stream has yielded yet."""
        states = self.engine.output_processor.request_states.values()
        arrived = self.engine.engine_core.outputs_queue
        return not arrived.empty() or any(s.queue and s.queue.output is not None for s in states)


async def _prompt(request: dict[str, Any]) -> TokensPrompt:
    """One image token a picture: vLLM puts in the others, and keeps what it computed of a picture by its content."""
    prompt = TokensPrompt(prompt_token_ids=request["prompt"])
    if request["images"]:
        images = await asyncio.to_thread(decoded_all, request["images"])
        prompt["multi_modal_data"] = {"image": images}
    return prompt


def _params(request: dict[str, Any]) -> SamplingParams:
    lark = request["lark"]
    return SamplingParams(
        **request["params"],
        structured_outputs=StructuredOutputsParams(grammar=lark) if lark else None,
        output_kind=RequestOutputKind.DELTA,
    )


def _piece(output: Any, top: int, version: int | None) -> Piece:
    if not output.outputs:
        return {n: [] for n in BY_TOKEN} | {"finish": "abort", "stop_reason": None}
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
        "versions": [version or 0] * len(ids),
        "finish": finish,
        "stop_reason": one.stop_reason,
    }
