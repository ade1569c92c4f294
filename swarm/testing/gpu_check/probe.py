"""One check, in a process of its own: ``python -m swarm.testing.gpu_check.probe NAME MODEL FOLDER`` prints findings as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.server.engine.host import EngineHost
from swarm.testing import engine_kit
from swarm.testing.engine_kit import Bench, Finding
from swarm.testing.gpu_check.cases import CASES, Case
from swarm.testing.gpu_check.machine import used_mib

LEFT_MIB = 200
"""Memory that a GPU may hold more than before (a driver's context that is being taken down)."""
FREED_S = 30


def bench_of(case: Case, model: str, folder: Path) -> Bench:
    """Return what the kit works with for ``case``."""
    config = TrainConfig.model_validate(
        {
            "engine": case.engine,
            "model": {"path": model, "max_model_len": 512},
            "sampling": {"max_response_tokens": 64},
            "algorithm": dict(case.algorithm),
            "verl": dict(case.verl),
        }
    )

    def make() -> EngineHost:
        if case.engine == "torch":
            return EngineHost()
        nonce = {"SWARM_ENGINE_NONCE": f"gpu-check-{os.getpid()}"}
        return EngineHost("swarm.server.engine_verl.child", nonce)

    return Bench(make, config, folder, gap=case.gap, exact=case.exact)


async def memory(bench: Bench) -> list[Finding]:
    """Boot, train, kill: what the GPUs hold before, while it serves, and afterwards."""
    before = used_mib()
    await bench.boot()
    serving = used_mib()
    await bench.engine.train(engine_kit.TrainBatch(1, 1, await bench.rows(), lr=1e-4))
    host: Any = bench.engine
    os.kill(host.pid, signal.SIGKILL)
    await bench.engine.died()
    for _ in range(FREED_S):
        if used_mib() <= before + LEFT_MIB:
            break
        await asyncio.sleep(1)
    after = used_mib()
    seen = f"{before} MiB before, {serving} MiB serving, {after} MiB after kill -9"
    return [Finding("memory_comes_back", after <= before + LEFT_MIB, seen)]


def main() -> None:
    """Run the case that the command line names."""
    name, model, folder = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    bench = bench_of(case, model, Path(folder))
    work = memory(bench) if case.probe == "memory" else engine_kit.run(bench)
    print(json.dumps([asdict(finding) for finding in asyncio.run(work)]))  # noqa: T201


if __name__ == "__main__":
    main()
