"""The engine ``verl`` in this process, driven as its child's loop drives it: what the live tests of its rollout ask.

Needs verl's environment; without GPUs, processes stand for them.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.server.engine.host import EngineHost
from swarm.server.engine_verl.leftovers import Process
from swarm.server.ports import (
    Chunk,
    GenerateRequest,
    SamplingParams,
    Span,
    TrainBatch,
    TrainResult,
    TrainRow,
)
from swarm.server.train.slices import finish
from swarm.testing.engine_kit import Bench

PATIENCE_S = 600.0
LONG = 400
"""Tokens of an answer that is still going on when something else happens."""


class Driver:
    """Asks an engine, lets it work, and keeps what it answers. ``engine`` is a ``VerlEngine``."""

    def __init__(self, engine: Any, config: TrainConfig) -> None:
        self.engine = engine
        self.chunks: dict[str, list[Chunk]] = {}
        """Request -> what came of it."""
        self.step = 0
        self._bench = Bench(EngineHost, config, Path())

    # -- asking ---------------------------------------------------------------------------------------------

    def prompt(self) -> list[int]:
        """Return the kit's question as tokens."""
        return self._bench.ask().prompt_ids

    def ask(self, **changes: Any) -> GenerateRequest:
        """Send the kit's question, changed; returns the request."""
        request = self._bench.ask(**changes)
        self.chunks[request.request_id] = []
        self.engine.submit(request)
        return request

    def ask_long(self, **changes: Any) -> GenerateRequest:
        """Send the kit's question for an answer of exactly ``LONG`` tokens, changed; returns the request."""
        endless = SamplingParams(ignore_eos=True)
        return self.ask(max_tokens=LONG, stop_token_ids=[], params=endless, **changes)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the engine work until something holds."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it did not come true"
            self.work()

    def work(self) -> None:
        """One turn of the child's loop."""
        for chunk in self.engine.tick():
            self.chunks[chunk.request_id].append(chunk)

    def answers(self, requests: Sequence[GenerateRequest]) -> list[Chunk]:
        """Wait for the ends of requests; returns each answer as one chunk."""
        names = [request.request_id for request in requests]
        self.until(lambda: all(self.chunks[n] and self.chunks[n][-1].finish for n in names))
        return [self.told(request) for request in requests]

    def told(self, request: GenerateRequest) -> Chunk:
        """Return what has come of a request as one chunk."""
        chunks = self.chunks[request.request_id]
        whole = Chunk(request.request_id, [], [], chunks[-1].finish if chunks else None)
        for chunk in chunks:
            whole.token_ids += chunk.token_ids
            whole.logprobs += chunk.logprobs
            whole.versions += chunk.versions
        return whole

    # -- training -------------------------------------------------------------------------------------------

    def rows(
        self, requests: Sequence[GenerateRequest], *, version: int | None = None
    ) -> list[TrainRow]:
        """Rows of answered requests, every second one good; with ``version`` only its tokens train."""
        rows: list[TrainRow] = []
        for index, request in enumerate(requests):
            told, start = self.told(request), len(request.prompt_ids)
            first = told.versions.index(version) if version is not None else 0
            ids = request.prompt_ids + told.token_ids
            row = TrainRow(
                key=f"s0.g0/{index}/0",
                episode_id=f"e{index}",
                ids=ids,
                spans=[Span(start + first, len(ids), request.temperature)],
                logprobs=told.logprobs[first:],
                advantage=1.0 if index % 2 else -1.0,
                weight=1 / (len(requests) * len(told.token_ids)),
                images=request.images,
            )
            rows.append(row)
        return rows

    def batch(
        self, rows: list[TrainRow], *, lr: float = 1e-2, overlapped: bool = False
    ) -> TrainBatch:
        """The next step's batch."""
        self.step += 1
        return TrainBatch(self.step, self.step, rows, lr=lr, overlapped=overlapped)

    def train(self, requests: Sequence[GenerateRequest], *, lr: float = 1e-2) -> TrainResult:
        """One update on requests, once they are answered; nothing samples meanwhile."""
        self.answers(requests)
        return finish(self.engine.update(self.batch(self.rows(requests), lr=lr)))

    def overlap(self, batch: TrainBatch, busy: Callable[[], None] = lambda: None) -> TrainResult:
        """One update while generations go on; ``busy`` is called each turn."""
        pieces = self.engine.update(batch)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value
            busy()
            self.work()

    # -- looking --------------------------------------------------------------------------------------------

    def inside(self) -> list[set[str]]:
        """Requests that vLLM holds, a replica."""
        return [set(names) for names in self.engine.replicas.inside()]

    def processes(self, replica: int) -> list[Process]:
        """Processes of a replica, its server's first."""
        return self.engine.replicas.processes(replica)

    def engine_core(self, replica: int) -> int:
        """The process in which a replica's vLLM schedules."""
        pids = [pid for pid, _ in self.processes(replica)]
        (pid,) = [p for p in pids if b"EngineCore" in Path(f"/proc/{p}/cmdline").read_bytes()]
        return pid

    def served(self) -> dict[int, list[str]]:
        """Checksum of what each replica serves."""
        return self.engine.replicas.served()

    def counter(self, replica: int, name: str) -> float:
        """Sum of one of vLLM's own metrics."""
        url = f"http://{self.engine.replicas.addresses[replica]}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))
