"""One check, in a process of its own: ``python -m swarm.testing.gpu_check.probe NAME MODEL FOLDER`` prints findings as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.server.engine.host import EngineHost
from swarm.server.engine_verl.verl_config import compose
from swarm.testing import engine_kit
from swarm.testing.engine_kit import Bench, Finding
from swarm.testing.gpu_check import moves
from swarm.testing.gpu_check.cases import CASES, Case
from swarm.testing.gpu_check.machine import used_mib

LEFT_MIB = 200
"""Memory that a GPU may hold more than before (a driver's context that is being taken down)."""
FREED_S = 30
LOOK_S = 0.2
COMPOSE_ONLY = "SWARM_GPU_CHECK_COMPOSE"
"""Set by a rehearsal: compose verl's configuration for a GPU, and boot nothing."""


def config_of(case: Case, model: str) -> TrainConfig:
    """Return the training configuration of ``case``."""
    return TrainConfig.model_validate(
        {
            "engine": case.engine,
            "model": {"path": model, "max_model_len": 512},
            "sampling": {"max_response_tokens": 64},
            "algorithm": dict(case.algorithm),
            "asynchronous": dict(case.asynchronous),
            "verl": dict(case.verl),
        }
    )


def bench_of(case: Case, model: str, folder: Path) -> Bench:
    """Return what the kit works with for ``case``. The engine's nonce is the one of this process, when it has one."""

    def make() -> EngineHost:
        return (
            EngineHost() if case.engine == "torch" else EngineHost("swarm.server.engine_verl.child")
        )

    return Bench(make, config_of(case, model), folder, gap=case.gap, exact=False)


async def memory(bench: Bench) -> list[Finding]:
    """Boot, train, kill: what the GPUs hold before, while it serves, at the least while it trains, and afterwards."""
    before = used_mib()
    await bench.boot()
    rows = await bench.rows()
    serving = used_mib()
    training = asyncio.create_task(bench.engine.train(engine_kit.TrainBatch(1, 1, rows, lr=1e-4)))
    least = serving
    while not training.done():
        least = min(least, await asyncio.to_thread(used_mib))
        await asyncio.sleep(LOOK_S)
    await training
    host: Any = bench.engine
    os.kill(host.pid, signal.SIGKILL)
    await bench.engine.died()
    for _ in range(FREED_S):
        if used_mib() <= before + LEFT_MIB:
            break
        await asyncio.sleep(1)
    after = used_mib()
    asleep = least - before < (serving - before) / 2 or not serving
    return [
        Finding("rollout_gives_memory_back", asleep, f"{serving} MiB serving, {least} MiB at least in training"),
        Finding("memory_comes_back", after <= before + LEFT_MIB, f"{before} MiB before, {after} MiB after kill -9"),
    ]  # fmt: skip


async def composes(bench: Bench) -> list[Finding]:
    """Compose verl's configuration as for a GPU: its keys are those that the installed verl has."""
    compose(bench.config, folder=str(bench.folder), max_len=512, device="cuda")
    return [Finding("composes", ok=True, detail="verl takes the configuration; nothing was booted")]


PROBES: dict[str, Callable[[Bench], Awaitable[list[Finding]]]] = {
    "kit": engine_kit.run,
    "once": moves.once,
    "again": moves.again,
    "memory": memory,
    "replica": moves.replica,
}


async def _found(probe: Callable[[Bench], Awaitable[list[Finding]]], bench: Bench) -> list[Finding]:
    return await probe(bench)


def _end_with_parent() -> None:
    """Wait until whoever started this closes our stdin, or is gone; then end all of our session."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the case that the command line names. Ends at once when its stdin is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    name, model, folder = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    bench = bench_of(case, model, Path(folder))
    probe = composes if os.environ.get(COMPOSE_ONLY) else PROBES[case.probe]
    found = asyncio.run(_found(probe, bench))
    print(json.dumps([asdict(finding) for finding in found]))  # noqa: T201


if __name__ == "__main__":
    main()
