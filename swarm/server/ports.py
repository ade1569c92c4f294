"""The seam between the front process and an engine: messages (msgspec) and the ``Engine`` protocol.

The front imports no torch. Every engine runs in a child process; ``swarm.server.engine.host`` is the front's half.
Messages cross the process boundary as msgpack, many in one frame.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from swarm.protocol.config import TrainConfig


class GenerateRequest(msgspec.Struct, tag="generate"):
    """Sample one continuation."""

    request_id: str
    prompt_ids: list[int]
    max_tokens: int
    temperature: float
    """0 = greedy; log-probabilities are then those of temperature 1."""
    stop_token_ids: list[int]
    """Sampling one of these ends the answer; the token is part of token_ids."""
    noise_key: str
    """Keys the sampling noise: same key, same weights, same prompt -> same tokens (up to rounding of a batched matmul)."""
    affinity: str
    """Calls with the same value tend to share a prompt prefix (the episode id); the engine may reuse its KV rows."""
    stop: list[str] = []
    """Stop strings: sampling ends once the decoded text of the answer contains one; all sampled ids are kept."""
    top_logprobs: int = 0
    stream: bool = False
    """True: a Chunk per token; False: one Chunk with everything."""


class Chunk(msgspec.Struct, tag="chunk"):
    """Tokens of one request, in order. ``finish`` is set on the last chunk and only there."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    finish: Literal["stop", "length", "abort"] | None = None
    top: list[list[tuple[int, float]]] = []
    """Per token, the top_logprobs largest (id, logprob), when asked for."""


class Span(msgspec.Struct, array_like=True):
    """Sampled tokens [start, end) of a row, trained, with the temperature they were sampled at."""

    start: int
    end: int
    temperature: float


class TrainRow(msgspec.Struct):
    """One sequence to train on: a root-to-leaf path of an episode's tree, each sampled token in exactly one row's spans."""

    key: str
    """Sort key; rows are trained in this order: ``group_id/repeat/row``."""
    episode_id: str
    ids: list[int]
    spans: list[Span]
    logprobs: list[float]
    """Of the tokens in spans, concatenated in order."""
    advantage: float
    weight: float
    """Weight of each trained token in the loss; the front has already divided by the normaliser."""


class TrainBatch(msgspec.Struct, tag="train"):
    """Consume one batch: ``loss = sum_rows sum_tokens weight * ppo_clip(ratio, advantage)``, one optimizer move per minibatch and epoch."""

    step: int
    policy_version: int
    """Version after the move."""
    rows: list[TrainRow]


class TrainResult(msgspec.Struct, tag="trained"):
    """What the update did. Non-finite weights are never served: the engine rolls back and sets ``rolled_back``."""

    step: int
    policy_version: int
    fingerprint: str
    moved: bool
    rolled_back: str = ""
    """Empty, or why the move was undone."""
    loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float = 0.0
    entropy: float = 0.0
    logprob_gap_max: float = 0.0
    tokens: int = 0
    update_cpu_s: float = 0.0
    sampling_cpu_s: float = 0.0
    """CPU seconds that the engine spent sampling since the previous TrainResult."""


class EngineInfo(msgspec.Struct, tag="ready"):
    """What a booted engine says of itself."""

    fingerprint: str
    max_model_len: int
    policy_version: int
    device: str
    parameters: int
    pid: int


class Engine(Protocol):
    """A model and its optimizer. All methods are called from one event loop.

    Every method raises ``swarm.protocol.errors.EngineFailed`` when the engine's process is gone; ``died`` then also fires.
    """

    async def boot(self, config: TrainConfig, *, checkpoint: str | None = None) -> EngineInfo:
        """Start, load the model (or the checkpoint folder: weights, optimizer, version) and answer when ready to sample."""
        ...

    async def generate(self, request: GenerateRequest) -> Chunk:
        """Sample to the end; one final chunk with all tokens."""
        ...

    def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Sample token by token; the last chunk carries ``finish``. Closing the iterator aborts the request."""
        ...

    def abort(self, request_id: str) -> None:
        """Stop a generation; its waiter gets a final chunk with ``finish='abort'``. Unknown ids are ignored."""
        ...

    async def train(self, batch: TrainBatch) -> TrainResult:
        """One update; served weights are the new ones when this returns. Must not be called while generations run."""
        ...

    async def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint (HF model files, optimizer, version) atomically into ``folder``; returns its fingerprint."""
        ...

    async def close(self) -> None:
        """End the process and wait for it. Safe to call twice and after a crash."""
        ...

    async def died(self) -> str:
        """Wait until the engine's process ends without ``close``; return why (exit code or signal)."""
        ...
