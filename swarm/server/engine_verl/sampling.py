"""A request of the front in the terms of vLLM or SGLang, and an answer in ours. Pure."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from swarm.protocol.errors import ConfigError
from swarm.server.ports import GenerateRequest

LEAST_TOP_P = 1e-6
"""Leaves the likeliest token, as 0 does in the embedded engine; vLLM and SGLang refuse 0."""


def vllm_request(
    request: GenerateRequest, *, lark: str = "", vocabulary: int | None = None
) -> dict[str, Any]:
    """Return what ``SwarmServer.stream`` takes: tokens in, tokens out, the sampled token's log-probability always along.

    ``lark`` is the constraint on the answer as a grammar; empty = none. Token ids from ``vocabulary`` on mean nothing, as in the
    embedded engine, and are left out.

    The seed is a hash of the noise key: the same key, weights and prompt give the same tokens, up to the rounding of a batched
    matmul. vLLM's ids with a log-probability are those of the distribution that was sampled from (``processed_logprobs``).
    """
    request = _taken(request, vocabulary)
    params = request.params
    sampled: dict[str, Any] = {
        **_in_both(request),
        "min_tokens": params.min_tokens,
        "max_tokens": request.max_tokens,
        "stop": request.stop or None,
        # Text is only needed to look for stop strings in it.
        "detokenize": bool(request.stop),
        "logprobs": request.top_logprobs,
        "seed": seed_of(request.noise_key),
    }
    if params.logit_bias:
        sampled["logit_bias"] = params.logit_bias
    return {
        "id": request.request_id,
        "prompt": request.prompt_ids,
        "params": sampled,
        "top": request.top_logprobs,
        "lark": lark,
        "images": request.images,
    }


def sglang_request(
    request: GenerateRequest, *, lark: str = "", vocabulary: int | None = None
) -> dict[str, Any]:
    """Return what ``SglangServer.sample`` takes. The seed counts only where SGLang runs with ``enable_deterministic_inference``.

    Raises:
        ConfigError: a grammar or alternatives of tokens are asked for.
    """
    if lark or request.top_logprobs:
        raise ConfigError(
            "SGLang samples without grammars and top_logprobs here.",
            hint="Leave them out of the call, or use verl.rollout: vllm.",
        )
    request = _taken(request, vocabulary)
    params = request.params
    sampled: dict[str, Any] = {
        **_in_both(request),
        "min_new_tokens": params.min_tokens,
        "max_new_tokens": request.max_tokens,
        "no_stop_trim": True,
        "logprobs": True,
        "sampling_seed": seed_of(request.noise_key) >> 32,
    }
    if request.stop:
        sampled["stop"] = request.stop
    if params.logit_bias:
        sampled["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    return {
        "id": request.request_id,
        "prompt": request.prompt_ids,
        "params": sampled,
        "images": request.images,
    }


def whole_piece(
    ids: list[int], logprobs: list[float], reason: str | None, *, version: int
) -> dict[str, Any]:
    """Return a whole answer as one last piece; a reason that is none of ours is an abort."""
    finish = reason if reason in ("stop", "length") else "abort"
    return {
        "ids": list(ids),
        "logprobs": list(logprobs),
        "top": [],
        "versions": [version] * len(ids),
        "finish": finish,
        "stop_reason": None,
    }


REQUESTS = {"vllm": vllm_request, "sglang": sglang_request}
"""``verl.rollout`` -> what its servers are asked with."""


def seed_of(noise_key: str) -> int:
    """63 bits of the key's hash."""
    return int.from_bytes(hashlib.sha256(noise_key.encode()).digest()[:8]) >> 1


def _in_both(request: GenerateRequest) -> dict[str, Any]:
    """What vLLM and SGLang call by the same names."""
    params = request.params
    return {
        "temperature": request.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "min_p": params.min_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "ignore_eos": params.ignore_eos,
        "stop_token_ids": request.stop_token_ids,
    }


def _taken(request: GenerateRequest, vocabulary: int | None) -> GenerateRequest:
    """The request without what a sampler refuses and the embedded engine lets pass."""

    def known(token: int) -> bool:
        return vocabulary is None or token < vocabulary

    told = request.params
    params = msgspec.structs.replace(
        told,
        top_p=max(told.top_p, LEAST_TOP_P),
        min_tokens=min(told.min_tokens, request.max_tokens),
        logit_bias={token: bias for token, bias in told.logit_bias.items() if known(token)},
    )
    stops = [token for token in request.stop_token_ids if known(token)]
    return msgspec.structs.replace(request, params=params, stop_token_ids=stops)
