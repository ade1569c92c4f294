"""What asynchronous mode is worth: seconds a step beside the synchronous loop, and how sampling and an update share one process.

The agents of the first part wait for their tools, so that rolling has gaps which an update can fill. In the second part no
front is involved: one engine, 64 endless generations, one update.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import write_result

from swarm.client import SwarmClient, run_episodes
from swarm.client.episode import AsyncEpisode
from swarm.client.tasks import Task
from swarm.protocol.config import TrainConfig
from swarm.server.engine.torch_engine import TorchEngine
from swarm.server.ports import GenerateRequest, Span, TrainBatch, TrainRow
from swarm.server.train.slices import finish
from swarm.tasks import calculator
from swarm.testing.server_process import server_process

STEPS = 10
TURNS = 2
"""Runs of each mode, alternating; the better one counts."""
STREAMS = 64
CONFIG: dict[str, Any] = {
    "run_name": "asynchronous",
    "sampling": {"max_response_tokens": 16},
    "optimizer": {"lr": 1e-3},
    "algorithm": {"epochs": 4},
    "batch": {"tasks": 16, "repeat": 8},
    "checkpoint": {"every_steps": 1000},
    "stop_at_step": STEPS,
}
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "asynchronous": {"asynchronous": {"enabled": True, "max_staleness": 1}},
    "asynchronous, oversample 1.5": {
        "asynchronous": {"enabled": True, "max_staleness": 1},
        "batch": {"tasks": 16, "repeat": 8, "oversample": 1.5},
    },
}


async def waiting_agent(episode: AsyncEpisode, task: Task) -> Any:
    """The calculator agent, with a tool that takes its time: 0.2 s, and for one task in ten 0.8 s."""
    scored = await calculator.run_agent(episode, task)
    slow = random.Random(task.task_id).random() < 0.1
    await asyncio.sleep(0.8 if slow else 0.2)
    return scored


def run(changes: dict[str, Any]) -> dict[str, float]:
    """One training run; seconds a step without the first and the last one, and what its tokens were like."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder)) as server,
        SwarmClient(server.url, server.token()) as client,
    ):
        client.configure(CONFIG | changes)
        client.start()
        tasks = calculator.CalculatorTasks(exclude=[])
        run_episodes(
            tasks, waiting_agent, client=client, task_set=calculator.TASK_SET, parallel=192
        )
        steps = client.metrics(0)
    ends = [m.finished_at for m in steps]
    return {
        "step_s": (ends[-2] - ends[0]) / (len(ends) - 2),
        "rollout_s": statistics.fmean(m.rollout_s for m in steps[1:]),
        "update_s": statistics.fmean(m.update_s for m in steps[1:]),
        "staleness_mean": statistics.fmean(m.staleness_mean or 0.0 for m in steps),
        "clipped_share": statistics.fmean(m.importance_clipped_share or 0.0 for m in steps),
        "reward_last_three": statistics.fmean(m.reward_mean or 0.0 for m in steps[-3:]),
    }


def compare_runs() -> dict[str, Any]:
    """The best of each mode, and its seconds a step as a share of the synchronous ones."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MODES}
    for _ in range(TURNS):
        for name, changes in MODES.items():
            found[name].append(run(changes))
    best = {name: min(runs, key=lambda r: r["step_s"]) for name, runs in found.items()}
    base = best["synchronous"]["step_s"]
    return {
        name: {k: round(v, 4) for k, v in one.items()} | {"ratio": round(one["step_s"] / base, 3)}
        for name, one in best.items()
    }


def rows(count: int = 64, length: int = 160) -> list[TrainRow]:
    """Rows as long as a game of four turns."""
    rng = random.Random(0)
    spans = [Span(60, 100, 1.0), Span(120, length, 1.0)]
    tokens = sum(s.end - s.start for s in spans)
    return [
        TrainRow(
            key=f"g{i // 8}/{i % 8:04d}/0000",
            episode_id=f"e{i}",
            ids=[rng.randrange(20, 200) for _ in range(length)],
            spans=spans,
            logprobs=[-3.0] * tokens,
            advantage=rng.uniform(-1, 1),
            weight=1 / (count * tokens),
        )
        for i in range(count)
    ]


class Busy:
    """An engine that always has ``STREAMS`` generations; counts tokens and the gaps between them."""

    def __init__(self) -> None:
        config = {"asynchronous": {"enabled": True}}
        self.engine = TorchEngine(TrainConfig.model_validate(config))
        self._rng = random.Random(1)
        self._number = 0
        self.clear()

    def clear(self) -> None:
        """Begin to count."""
        self.tokens, self.gaps, self._last = 0, list[float](), time.perf_counter()

    def tick(self) -> None:
        """One token of every generation."""
        while self.engine.load < STREAMS:
            self._number += 1
            prompt = [self._rng.randrange(20, 200) for _ in range(60)]
            name = f"r{self._number}"
            self.engine.submit(GenerateRequest(name, prompt, 300, 1.0, [], name, name))
        self.engine.tick()
        now = time.perf_counter()
        self.tokens += STREAMS
        self.gaps.append(now - self._last)
        self._last = now


def alone(busy: Busy) -> dict[str, float]:
    """The update without sampling, and sampling without the update."""
    pieces, began = 0, time.perf_counter()
    work = busy.engine.update(TrainBatch(1, 1, rows(), overlapped=True))
    for _ in work:
        pieces += 1
    update_s = time.perf_counter() - began
    for _ in range(20):
        busy.tick()
    busy.clear()
    began = time.perf_counter()
    while time.perf_counter() - began < update_s:
        busy.tick()
    return {"update_s": update_s, "pieces": pieces, "tokens_per_s": busy.tokens / update_s}


def in_turns(busy: Busy, base: dict[str, float]) -> dict[str, float]:
    """As the engine does it: after each piece, sampling has as much time as the piece took."""

    def work() -> None:
        pieces = busy.engine.update(TrainBatch(2, 2, rows(), overlapped=True))
        while True:
            began = time.perf_counter()
            try:
                next(pieces)
            except StopIteration:
                return
            ends = time.perf_counter() * 2 - began
            while time.perf_counter() < ends:
                busy.tick()

    return measured(busy, base, work)


def in_a_thread(busy: Busy, base: dict[str, float]) -> dict[str, float]:
    """As it was not done: the update in a thread of its own."""

    def work() -> None:
        engine, batch = busy.engine, TrainBatch(3, 3, rows(), overlapped=True)
        pieces = engine._updater.slices(batch.rows, engine._terms(batch))
        thread = threading.Thread(target=lambda: finish(pieces))
        thread.start()
        while thread.is_alive():
            busy.tick()
        thread.join()

    return measured(busy, base, work)


def measured(busy: Busy, base: dict[str, float], work: Callable[[], None]) -> dict[str, float]:
    """``work_ratio``: update and tokens done, in seconds that each takes alone, a second of wall time."""
    busy.tick()
    busy.clear()
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    return {
        "update_s": took,
        "tokens_per_s": busy.tokens / took,
        "gap_median_ms": 1000 * statistics.median(busy.gaps),
        "gap_longest_ms": 1000 * max(busy.gaps),
        "work_ratio": (base["update_s"] + busy.tokens / base["tokens_per_s"]) / took,
    }


def compare_turns() -> dict[str, Any]:
    """One engine process: update and sampling alone, in turns, and in two threads; the best of three each."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    busy = Busy()
    alone(busy)  # the first update allocates the optimizer's state
    base = min((alone(busy) for _ in range(3)), key=lambda one: one["update_s"])
    ways = {"in turns": in_turns, "in a thread": in_a_thread}
    best = {
        name: max((way(busy, base) for _ in range(3)), key=lambda one: one["work_ratio"])
        for name, way in ways.items()
    }
    return {
        name: {key: round(value, 3) for key, value in one.items()}
        for name, one in ({"alone": base} | best).items()
    }


def main() -> None:
    """Measure both."""
    figures = {"engine": compare_turns(), "runs": compare_runs()}
    write_result("asynchronous", "python benchmarks/bench_asynchronous.py", figures)


if __name__ == "__main__":
    main()
