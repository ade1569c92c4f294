"""An engine without torch: its weights are one hash, which training moves as a function of the rows.

Same contract as every engine (``swarm.server.ports.Engine``): the same noise key, weights and prompt give the same
tokens; the same batches give the same fingerprint; a checkpoint folder restores it. ``kill`` plays the death of the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import EngineFailed
from swarm.server.model_files import resolve_model
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult, TrainRow

Script = Callable[[GenerateRequest], str | None]
"""Text to answer with (tokenised, end token added); None = keyed random tokens."""
STATE_FILE = "toy.json"


class ToyEngine:
    """See the module. ``script`` chooses replies; the public attributes below let a test meddle."""

    def __init__(self, script: Script | None = None, *, name: str = "toy") -> None:
        self.name = name
        self.script = script
        self.latency_s = 0.0
        """Real seconds before a generation answers."""
        self.hold: asyncio.Event | None = None
        """When set (the attribute), generations wait for the event."""
        self.train_gate: asyncio.Event | None = None
        """When set (the attribute), updates wait for the event."""
        self.boot_gate: asyncio.Event | None = None
        """When set (the attribute), ``boot`` waits for the event."""
        self.refuse_boot = ""
        """Non-empty: ``boot`` fails with this reason."""
        self.roll_back_steps: set[int] = set()
        """Updates of these steps are undone, as for non-finite weights."""
        self.die_in_train: dict[int, str] = {}
        """step -> "before" or "after": the process dies around that update, once."""
        self.booted = 0
        self.batches: list[TrainBatch] = []
        """Every batch that moved these weights, in order."""
        self.generating = 0
        self.closed = False
        self.max_model_len = 512
        self._reason: str | None = None
        self._death: asyncio.Event = asyncio.Event()
        self._aborted: set[str] = set()
        self._running: dict[str, asyncio.Event] = {}
        self._fingerprint = ""
        self._version = 0
        self._vocab = 0
        self._eos = 0
        self._tokenizer: Tokenizer | None = None

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
        self.max_model_len = config.model.max_model_len or int(model["max_position_embeddings"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._fingerprint, self._version = _hash("model", folder.name), 0
        if checkpoint is not None:
            path = Path(checkpoint) / STATE_FILE
            state = json.loads(path.read_text(encoding="utf-8"))
            self._fingerprint, self._version = state["fingerprint"], state["policy_version"]
        await asyncio.sleep(0)
        self._alive()
        return EngineInfo(self._fingerprint, self.max_model_len, self._version, "toy", 1, 0)

    async def generate(self, request: GenerateRequest) -> Chunk:
        """Answer with keyed random (or scripted) tokens, all at once."""
        async with self._call(request.request_id):
            if request.request_id in self._aborted:
                return Chunk(request.request_id, [], [], "abort")
            return self._sample(request)

    async def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Answer like ``generate``, token by token."""
        async with self._call(request.request_id):
            whole = self._sample(request)
            last = len(whole.token_ids) - 1
            for i, (token, logprob) in enumerate(zip(whole.token_ids, whole.logprobs, strict=True)):
                self._alive()
                if request.request_id in self._aborted:
                    yield Chunk(request.request_id, [], [], "abort")
                    return
                finish = whole.finish if i == last else None
                yield Chunk(request.request_id, [token], [logprob], finish, whole.top[i : i + 1])
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
        if self.generating:
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
            self._fingerprint = _hash(self._fingerprint, *map(_what_counts, batch.rows))
            self._version = batch.policy_version
        self.batches.append(batch)
        if when == "after":
            self.kill(f"died after the update of step {batch.step}")
            self._alive()
        tokens = sum(len(row.logprobs) for row in batch.rows)
        return TrainResult(
            batch.step, self._version, self._fingerprint, moved, reason, loss=0.5, tokens=tokens
        )

    async def save(self, folder: str) -> dict[str, Any]:
        """Write the hash into ``folder`` (made if absent)."""
        self._alive()
        state = {"fingerprint": self._fingerprint, "policy_version": self._version}
        _write(Path(folder), state)
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
    async def _call(self, request_id: str) -> AsyncIterator[None]:
        self._alive()
        event = self._running[request_id] = asyncio.Event()
        self.generating += 1
        try:
            if self.hold is not None:
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

    def _sample(self, request: GenerateRequest) -> Chunk:
        text = self.script(request) if self.script is not None else None
        if text is not None and self._tokenizer is not None:
            ids = [*self._tokenizer.encode(text, add_special_tokens=False).ids, self._eos]
        else:
            ids = self._random_ids(request)
        finish = "stop" if len(ids) <= request.max_tokens else "length"
        ids = ids[: request.max_tokens]
        logprobs = [-0.5 - (token % 7) / 10 for token in ids]
        top = [[(token, lp)] for token, lp in zip(ids, logprobs, strict=True)]
        wanted = top if request.top_logprobs else []
        return Chunk(request.request_id, ids, logprobs, finish, wanted)

    def _random_ids(self, request: GenerateRequest) -> list[int]:
        key = "greedy" if request.temperature == 0 else request.noise_key
        digest = hashlib.sha256(f"{key}|{self._fingerprint}|{request.prompt_ids}".encode()).digest()
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


def _what_counts(row: TrainRow) -> str:
    """All that may move weights: not the episode's id, which differs from run to run."""
    parts = (row.key, row.ids, row.spans, row.logprobs, row.advantage, row.weight)
    return msgspec.json.encode(parts).decode()


def _write(folder: Path, state: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")


def _hash(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
