"""The seam between the front process and an engine: messages (msgspec) and the ``Engine`` protocol.

The front imports no torch. Every engine runs in a child process; ``swarm.server.engine.host`` is the front's half.
Messages cross the process boundary as msgpack, many in one frame.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, Protocol

import msgspec

from swarm.protocol.config import TrainConfig


class SamplingParams(msgspec.Struct, omit_defaults=True):
    """Everything beyond temperature that shapes the distribution of a token, as applied; defaults do nothing."""

    top_p: float = 1.0
    top_k: int = 0
    """0 = all."""
    min_p: float = 0.0
    logit_bias: dict[int, float] = {}
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Over prompt and answer; presence and frequency over the answer only (OpenAI, vLLM)."""
    min_tokens: int = 0
    """End tokens are impossible before this many."""
    ignore_eos: bool = False
    grammar: str = ""
    """A grammar as JSON of ``{"kind", "body"}``; empty = none."""

    @property
    def truncates(self) -> bool:
        """Whether tokens can be impossible that the model alone allows."""
        return bool(
            self.top_p < 1
            or self.top_k
            or self.min_p
            or self.grammar
            or self.min_tokens
            or self.ignore_eos
        )


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
    params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    top_logprobs: int = 0
    stream: bool = False
    """True: a Chunk per token; False: one Chunk with everything."""
    images: list[bytes] = []
    """Encoded pictures (PNG, JPEG, WebP, GIF), one for each image token of ``prompt_ids``, in order. The prompt holds one such token a picture; the engine puts in as many as its model wants."""


class Chunk(msgspec.Struct, tag="chunk"):
    """Tokens of one request, in order. ``finish`` is set on the last chunk and only there."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    finish: Literal["stop", "length", "abort"] | None = None
    top: list[list[tuple[int, float]]] = []
    """Per token, the top_logprobs largest (id, logprob), when asked for."""
    versions: list[int] = []
    """Policy version of each token; empty = all are of the version that the request was sent under."""
    kept: list[list[int]] = []
    """Per token, what truncation left possible: ids, ascending, when few are left; ``[-1, ...ids]`` = all but these; ``[]`` = all. Empty = no truncation."""
    stop_reason: str | int | None = None
    """The stop string or extra stop token that ended it."""


class Span(msgspec.Struct, array_like=True):
    """Sampled tokens [start, end) of a row, trained, with the temperature they were sampled at."""

    start: int
    end: int
    temperature: float


class SpanSampling(msgspec.Struct, omit_defaults=True):
    """What the trainer needs to compute a span's log-probabilities under the distribution that it was sampled from."""

    params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    """Biases and penalties are applied anew; truncation is not recomputed (new weights would truncate otherwise): see ``kept``."""
    kept: list[list[int]] = []
    """As ``Chunk.kept``, one a token of the span."""
    prompt_start: int = 0
    """Position in the row at which this call's own prompt begins: ``repetition_penalty`` counts from there."""
    answer_start: int = 0
    """Position in the row at which its answer begins: presence and frequency penalties count from there. A span may begin later."""


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
    advantages: list[float] = []
    """Per trained token, instead of ``advantage``; empty = that one for all."""
    weights: list[float] = []
    """Per trained token, multiplied with ``weight``; empty = 1."""
    versions: list[int] = []
    """Per trained token, the policy version that sampled it (asynchronous mode); empty = not told."""
    replays: list[SpanSampling] = []
    """One a span, how it was sampled beyond temperature; empty = plainly. The loss needs the distribution that was sampled from."""
    agent: str = ""
    """Whose calls these are; a row is of one agent."""
    reward: float = 0.0
    """What the agent got in the episode, for an engine that computes advantages of its own (``verl.adv_estimator``)."""
    images: list[bytes] = []
    """As ``GenerateRequest.images``, over ``ids``: spans and positions count one token a picture."""


class TrainBatch(msgspec.Struct, tag="train"):
    """Consume one batch: ``loss = sum_rows sum_tokens weight * ppo_clip(ratio, advantage)``, one optimizer move per minibatch and epoch."""

    step: int
    policy_version: int
    """Version after the move."""
    rows: list[TrainRow]
    lr: float | None = None
    """Learning rate of this move; None = the boot config's. In the batch, so that a replay needs nothing else."""
    kl_coef: float | None = None
    """As ``algorithm.kl_coef``; None = the boot config's."""
    overlapped: bool = False
    """True: generations go on during this update (asynchronous mode) and the loss is importance-corrected."""


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
    kl: float | None = None
    """Mean k3 estimate over trained tokens; None without a reference model."""
    importance_clipped_share: float | None = None
    """Share of trained tokens whose importance weight was truncated; None when not ``overlapped``."""
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
    image_tokens: int = 0
    """Most tokens that one picture takes in the model's context; 0 = the engine reads text only."""


class Engine(Protocol):
    """A model and its optimizer. All methods are called from one event loop.

    Every method raises ``swarm.protocol.errors.EngineFailed`` when the engine's process is gone; ``died`` then also fires.
    """

    async def boot(self, config: TrainConfig, *, checkpoint: str | None = None) -> EngineInfo:
        """Start, load the model (or the checkpoint folder: weights, optimizer, version) and answer when ready to sample."""
        ...

    async def generate(
        self, request: GenerateRequest, *, on_late: Callable[[Chunk | None], None] | None = None
    ) -> Chunk:
        """Sample to the end; one final chunk with all tokens.

        A cancelled caller aborts the request. ``on_late`` is then called once, now or later, with the chunk that ends it (or
        None, when the engine is gone): tokens were sampled although nobody waits for them. In no other case is it called.
        """
        ...

    def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Sample token by token; the last chunk carries ``finish``. Closing the iterator aborts the request."""
        ...

    def abort(self, request_id: str) -> None:
        """Stop a generation; its waiter gets a final chunk with ``finish='abort'``. Unknown ids are ignored."""
        ...

    async def train(self, batch: TrainBatch) -> TrainResult:
        """One update; served weights are the new ones when this returns.

        Generations must not run meanwhile, unless ``batch.overlapped``: then they go on, and each token is of the weights
        served when it was sampled (``Chunk.versions``); running streams survive the swap.
        """
        ...

    async def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint (HF model files, optimizer, version) atomically into ``folder``; returns its fingerprint.

        Raises ``CheckpointFailed`` when it cannot be written (a full disk): the engine goes on, what was there stays.
        """
        ...

    async def close(self) -> None:
        """End the process and wait for it. Safe to call twice and after a crash."""
        ...

    async def died(self) -> str:
        """Wait until the engine's process ends without ``close``; return why (exit code or signal)."""
        ...
