"""An engine without torch: its weights are one hash, which training moves as a function of the rows.

Same contract as every engine (``swarm.server.ports.Engine``): the same noise key, weights and prompt give the same
tokens; the same batches give the same fingerprint; a checkpoint folder restores it. ``kill`` plays the death of the process.
With ``asynchronous.enabled`` an overlapped update may run beside generations, chunks tell versions, and a stream that
outlives the update goes on with what the new weights would say.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import CheckpointFailed, EngineFailed
from swarm.server.constraints import Grammars
from swarm.server.model_files import resolve_model
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult, TrainRow

Script = Callable[[GenerateRequest], str | None]
"""Text to answer with (tokenised, end token added); None = keyed random tokens."""
STATE_FILE = "toy.json"
KEPT_BATCHES = 256
IMAGE_TOKENS = 4
"""Of a picture, for a model whose config.json names an image token: the toy then "reads" pictures as it reads ids."""


class ToyEngine:
    """See the module. ``script`` chooses replies; the public attributes below let a test meddle."""

    def __init__(self, script: Script | None = None, *, name: str = "toy") -> None:
        self.name = name
        self.script = script
        self.latency_s = 0.0
        """Real seconds before a generation answers."""
        self.hold: asyncio.Event | None = None
        """When set (the attribute), generations wait for the event."""
        self.hold_after = 0
        """Tokens that a stream has handed out when it begins to wait for ``hold``."""
        self.train_gate: asyncio.Event | None = None
        """When set (the attribute), updates wait for the event."""
        self.boot_gate: asyncio.Event | None = None
        """When set (the attribute), ``boot`` waits for the event."""
        self.refuse_save = ""
        """Non-empty: ``save`` fails with this reason, as on a full disk."""
        self.save_gate: asyncio.Event | None = None
        """When set (the attribute), ``save`` waits for the event."""
        self.refuse_boot = ""
        """Non-empty: ``boot`` fails with this reason."""
        self.roll_back_steps: set[int] = set()
        """Updates of these steps are undone, as for non-finite weights."""
        self.die_in_train: dict[int, str] = {}
        """step -> "before" or "after": the process dies around that update, once."""
        self.before_abort = 0
        """Tokens that a generation has sampled by the time it is aborted."""
        self.sampled = 0
        """Tokens handed out so far, whoever got them."""
        self.booted = 0
        self.batches: list[TrainBatch] = []
        """The batches that moved these weights, in order; the last ``KEPT_BATCHES``."""
        self.generating = 0
        self.closed = False
        self.max_model_len = 512
        self._reason: str | None = None
        self._death: asyncio.Event = asyncio.Event()
        self._aborted: set[str] = set()
        self._running: dict[str, asyncio.Event] = {}
        self._fingerprint = ""
        self._version = 0
        self._apart = False
        self._kl_coef = 0.0
        self._vocab = 0
        self._eos = 0
        self._image: int | None = None
        self._tokenizer: Tokenizer | None = None
        self._grammars: Grammars | None = None

    async def boot(self, config: TrainConfig, *, checkpoint: str | None = None) -> EngineInfo:
        """Load the model folder's sizes and the checkpoint's hash."""
        self.booted += 1
        if self.boot_gate is not None:
            await self.boot_gate.wait()
        if self.refuse_boot:
            raise EngineFailed(f"The toy engine did not boot: {self.refuse_boot}.")
        folder = resolve_model(config.model.path)
        model = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._vocab, self._eos = int(model["vocab_size"]), int(model["eos_token_id"])
        self._image = model.get("image_token_id")
        self.max_model_len = config.model.max_model_len or int(model["max_position_embeddings"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._grammars = Grammars(folder, self._vocab, [self._eos])
        self._apart, self._kl_coef = config.asynchronous.enabled, config.algorithm.kl_coef
        self._fingerprint, self._version = _hash("model", folder.name), 0
        if checkpoint is not None:
            path = Path(checkpoint) / STATE_FILE
            state = json.loads(path.read_text(encoding="utf-8"))
            self._fingerprint, self._version = state["fingerprint"], state["policy_version"]
        await asyncio.sleep(0)
        self._alive()
        image_tokens = 0 if self._image is None else IMAGE_TOKENS
        return EngineInfo(
            self._fingerprint, self.max_model_len, self._version, "toy", 1, 0, image_tokens
        )

    async def generate(
        self, request: GenerateRequest, *, on_late: Callable[[Chunk | None], None] | None = None
    ) -> Chunk:
        """Answer with keyed random (or scripted) tokens, all at once."""
        try:
            async with self._call(request.request_id):
                aborted = request.request_id in self._aborted
                return self._out(self._aborted_chunk(request) if aborted else self._sample(request))
        except asyncio.CancelledError:
            if on_late is not None:
                on_late(self._out(self._aborted_chunk(request)))
            raise

    def _out(self, chunk: Chunk) -> Chunk:
        self.sampled += len(chunk.token_ids)
        return chunk

    def _aborted_chunk(self, request: GenerateRequest) -> Chunk:
        whole, cut = self._sample(request), slice(self.before_abort)
        ids, logprobs, versions = whole.token_ids[cut], whole.logprobs[cut], whole.versions[cut]
        return Chunk(request.request_id, ids, logprobs, "abort", versions=versions)

    async def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Answer like ``generate``, token by token."""
        async with self._call(request.request_id, held=not self.hold_after):
            for i in itertools.count():
                if self.hold is not None and i == self.hold_after > 0:
                    await _first(self.hold, self._running[request.request_id])
                self._alive()
                if request.request_id in self._aborted:
                    yield Chunk(request.request_id, [], [], "abort")
                    return
                token = _only(self._sample(request), i)
                yield self._out(token)
                if token.finish is not None:
                    return
                await asyncio.sleep(0)

    def abort(self, request_id: str) -> None:
        """End a generation at its next token."""
        event = self._running.get(request_id)
        if event is not None:
            self._aborted.add(request_id)
            event.set()

    async def train(self, batch: TrainBatch) -> TrainResult:
        """Fold the rows into the weights' hash; no rows move nothing."""
        self._alive()
        for row in batch.rows:
            self._check_pictures(row.ids, row.images)
        if self.generating and not (batch.overlapped and self._apart):
            raise AssertionError(f"train was called while {self.generating} generations run")
        await asyncio.sleep(0)
        if self.train_gate is not None:
            await self.train_gate.wait()
        when = self.die_in_train.pop(batch.step, "")
        if when == "before":
            self.kill(f"died before the update of step {batch.step}")
            self._alive()
        reason = "toy weights were not finite" if batch.step in self.roll_back_steps else ""
        moved = bool(batch.rows) and not reason
        if moved:
            terms = f"{batch.lr}/{batch.kl_coef}"
            self._fingerprint = _hash(self._fingerprint, terms, *map(_what_counts, batch.rows))
            self._version = batch.policy_version
        self.batches.append(batch)
        del self.batches[:-KEPT_BATCHES]
        if when == "after":
            self.kill(f"died after the update of step {batch.step}")
            self._alive()
        tokens = sum(len(row.logprobs) for row in batch.rows)
        kl_coef = self._kl_coef if batch.kl_coef is None else batch.kl_coef
        return TrainResult(
            batch.step,
            self._version,
            self._fingerprint,
            moved,
            reason,
            loss=0.5,
            tokens=tokens,
            kl=0.25 if kl_coef else None,
            importance_clipped_share=0.125 if batch.overlapped else None,
        )

    async def save(self, folder: str) -> dict[str, Any]:
        """Write the hash into ``folder`` (made if absent)."""
        self._alive()
        if self.save_gate is not None:
            await self.save_gate.wait()
        if self.refuse_save:
            raise CheckpointFailed(f"The toy engine did not save: {self.refuse_save}.")
        state = {"fingerprint": self._fingerprint, "policy_version": self._version}
        try:
            _write(Path(folder), state)
        except OSError as error:
            raise CheckpointFailed(f"The toy engine did not save: {error.strerror}.") from error
        return state

    async def close(self) -> None:
        """End; safe twice and after ``kill``."""
        self.closed = True
        if self._reason is None:
            self._reason = "closed"
        for event in self._running.values():
            event.set()

    async def died(self) -> str:
        """Wait for ``kill``; never returns after ``close``."""
        await self._death.wait()
        return self._reason or ""

    def kill(self, reason: str = "killed by signal 9") -> None:
        """Play the death of the process: everything pending fails, ``died`` returns ``reason``."""
        if self._reason is None:
            self._reason = reason
        self._death.set()
        for event in self._running.values():
            event.set()

    def _alive(self) -> None:
        if self._reason is not None:
            raise EngineFailed(f"The engine process is gone: {self._reason}.")

    @asynccontextmanager
    async def _call(self, request_id: str, *, held: bool = True) -> AsyncIterator[None]:
        self._alive()
        event = self._running[request_id] = asyncio.Event()
        self.generating += 1
        try:
            if self.hold is not None and held:
                await _first(self.hold, event)
            elif self.latency_s:
                await asyncio.sleep(self.latency_s)
            else:
                await asyncio.sleep(0)
            self._alive()
            yield
        finally:
            self.generating -= 1
            del self._running[request_id]
            self._aborted.discard(request_id)

    def _check_pictures(self, ids: list[int], images: list[bytes]) -> None:
        wanted = 0 if self._image is None else ids.count(self._image)
        if wanted != len(images):
            raise AssertionError(f"{len(images)} pictures came for {wanted} image tokens")

    def _sample(self, request: GenerateRequest) -> Chunk:
        self._check_pictures(request.prompt_ids, request.images)
        text = self.script(request) if self.script is not None else None
        if text is not None and self._tokenizer is not None:
            ids = [*self._tokenizer.encode(text, add_special_tokens=False).ids, self._eos]
        elif request.params.grammar:
            ids = self._constrained_ids(request)
        else:
            ids = self._random_ids(request)
        ends = [i for i, token in enumerate(ids) if token in request.stop_token_ids]
        ids = ids[: ends[0] + 1] if ends else ids
        finish = "stop" if len(ids) <= request.max_tokens else "length"
        ids = ids[: request.max_tokens]
        logprobs = [-0.5 - (token % 7) / 10 for token in ids]
        top = [[(token, lp)] for token, lp in zip(ids, logprobs, strict=True)]
        wanted = top if request.top_logprobs else []
        versions = [self._version] * len(ids) if self._apart else []
        return Chunk(request.request_id, ids, logprobs, finish, wanted, versions)

    def _constrained_ids(self, request: GenerateRequest) -> list[int]:
        """Keyed random tokens that the constraint allows, ended as soon as it may end."""
        assert self._grammars is not None
        matcher = self._grammars.matcher(request.params.grammar)
        draw = random.Random(f"{request.noise_key}|{self._fingerprint}|{_read(request)}")  # noqa: S311 - a toy
        ids: list[int] = []
        while len(ids) < request.max_tokens and self._eos not in ids:
            bits = matcher.allowed()
            allowed = [i for i in range(self._vocab) if bits[i >> 3] >> (i & 7) & 1]
            ids.append(self._eos if self._eos in allowed else draw.choice(allowed))
            matcher.consume(ids[-1])
        return ids

    def _random_ids(self, request: GenerateRequest) -> list[int]:
        key = "greedy" if request.temperature == 0 else request.noise_key
        digest = hashlib.sha256(f"{key}|{self._fingerprint}|{_read(request)}".encode()).digest()
        length = 1 + digest[0] % 5
        words = range(20, self._vocab)  # above the special tokens
        ids = [
            words[int.from_bytes(digest[2 * i + 1 : 2 * i + 3]) % len(words)] for i in range(length)
        ]
        return [*ids, self._eos]


class ToyFleet:
    """Makes toy engines for a service and remembers them: ``SwarmService(engine_factory=fleet)``."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.engines: list[ToyEngine] = []
        self.prepare: Callable[[ToyEngine], None] = lambda _engine: None
        """Called on each new engine, to set its traps."""

    def __call__(self, name: str) -> ToyEngine:
        """Return a new engine."""
        engine = ToyEngine(self.script, name=name)
        self.prepare(engine)
        self.engines.append(engine)
        return engine

    @property
    def latest(self) -> ToyEngine:
        """The engine made last."""
        return self.engines[-1]


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _read(request: GenerateRequest) -> str:
    """What an answer depends on besides the weights."""
    seen = [hashlib.sha256(image).hexdigest() for image in request.images]
    return f"{request.prompt_ids}{seen or ''}"


def _only(whole: Chunk, i: int) -> Chunk:
    """Token ``i`` of an answer as a chunk of its own; past its end, once more the last."""
    last = len(whole.token_ids) - 1
    at, finish = min(i, last), whole.finish if i >= last else None
    one = slice(at, at + 1)
    return Chunk(
        whole.request_id,
        whole.token_ids[one],
        whole.logprobs[one],
        finish,
        whole.top[one],
        whole.versions[one],
    )


def _what_counts(row: TrainRow) -> str:
    """All that may move weights: not the episode's id, which differs from run to run."""
    parts = (
        row.key,
        row.ids,
        row.spans,
        row.logprobs,
        row.advantage,
        row.weight,
        row.advantages,
        row.weights,
        *row.images,
    )
    return msgspec.json.encode(parts).decode()


def _write(folder: Path, state: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")


def _hash(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
