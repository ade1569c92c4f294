"""What must be right before the engine boots: packages, drivers, NCCL, Ray, vLLM, disk, shared memory, and a smoke training.

Each check answers in words and changes nothing; the smoke training boots the engine for two updates of the tiny model.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import SwarmError
from swarm.server.engine_verl import dependencies

Level = Literal["ok", "warn", "fail"]
GIB = 2**30
LITTLE_DISK, LITTLE_SHARED = 100 * GIB, 8 * GIB
IMPORT_S = 120.0


@dataclass(frozen=True)
class Check:
    """One finding; ``hint`` says what to do when it is not ``ok``."""

    name: str
    level: Level
    detail: str
    hint: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def packages(rollout: str = "vllm") -> Check:
    """Missing and untested packages."""
    wrong = dependencies.problems(rollout)
    if wrong:
        return Check("verl packages", "fail", "; ".join(map(str, wrong)), dependencies.HINT)
    tested = ", ".join(f"{one.package} {one.low}+" for one in dependencies.REQUIRED)
    return Check("verl packages", "ok", f"all within what was tested ({tested})")


def drivers() -> Check:
    """Whether NVIDIA's driver answers, and what it drives."""
    command = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Check(
            "GPU driver", "warn", "nvidia-smi does not answer", "Without a GPU only tests run."
        )
    gpus = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if not gpus:
        return Check("GPU driver", "warn", "no GPU", "Without a GPU only tests run.")
    return Check("GPU driver", "ok", f"{len(gpus)} x {gpus[0]}")


def cuda() -> Check:
    """Whether torch sees the GPUs, and its NCCL; in a process of its own."""
    code = (
        "import torch; n = torch.cuda.device_count();"
        "print(torch.__version__, n, '.'.join(map(str, torch.cuda.nccl.version())) if n else '-')"
    )
    answer = _python(code)
    if isinstance(answer, Check):
        return answer
    version, count, nccl = answer.split()
    if count == "0":
        return Check(
            "torch and NCCL",
            "warn",
            f"torch {version} sees no GPU",
            "Install the CUDA build of torch that fits the driver.",
        )
    return Check("torch and NCCL", "ok", f"torch {version}, {count} GPUs, NCCL {nccl}")


def imports() -> Check:
    """Whether verl, Ray and vLLM can be imported together; in a process of its own."""
    answer = _python("import ray, vllm, verl; print(verl.__version__)", "verl imports")
    return answer if isinstance(answer, Check) else Check("verl imports", "ok", f"verl {answer}")


def ray_cluster(address: str | None) -> Check:
    """Whether the cluster answers and has GPUs; without an address there is nothing to ask."""
    if address is None:
        return Check("Ray cluster", "ok", "the server starts a Ray of its own")
    code = (
        f"import ray; ray.init(address={address!r}, log_to_driver=False);"
        "print(len(ray.nodes()), ray.cluster_resources().get('GPU', 0))"
    )
    answer = _python(code, "Ray cluster")
    if isinstance(answer, Check):
        return answer
    nodes, gpus = answer.split()
    return Check("Ray cluster", "ok", f"{nodes} nodes, {float(gpus):g} GPUs at {address}")


def disk(folder: Path) -> Check:
    """Room for checkpoints: three times the weights and moments of the model, kept twice."""
    free = shutil.disk_usage(folder).free
    detail = f"{free / GIB:.0f} GiB free at {folder}"
    if free < LITTLE_DISK:
        return Check("disk", "warn", detail, "A 7B checkpoint with its moments takes about 90 GiB.")
    return Check("disk", "ok", detail)


def shared_memory() -> Check:
    """Ray's object store and NCCL live in it; containers get 64 MiB unless told otherwise."""
    place = Path("/dev/shm")  # noqa: S108 - looked at, not written
    if not place.is_dir():
        return Check("shared memory", "warn", "there is no /dev/shm", "")
    free = shutil.disk_usage(place).free
    detail = f"{free / GIB:.1f} GiB"
    if free < LITTLE_SHARED:
        return Check(
            "shared memory", "warn", detail, "In a container: --shm-size=64g or --ipc=host."
        )
    return Check("shared memory", "ok", detail)


def smoke() -> Check:
    """Boot, sample, train two updates, close."""
    from swarm.server.engine.host import EngineHost

    config = TrainConfig.model_validate({"engine": "verl", "engine_hang_s": 900})

    async def play() -> str:
        engine = EngineHost("swarm.server.engine_verl.child")
        try:
            info = await engine.boot(config)
            prints = [info.fingerprint]
            for step in (1, 2):
                done = await engine.train(await smoke_batch(engine, step))
                prints.append(done.fingerprint)
        finally:
            await engine.close()
        if len(set(prints)) != len(prints):
            raise AssertionError(f"updates moved nothing: {prints}")
        return f"two updates on {info.device}"

    try:
        return Check("smoke training", "ok", asyncio.run(play()))
    except SwarmError as error:
        return Check("smoke training", "fail", error.message, error.hint)
    except AssertionError as error:
        return Check("smoke training", "fail", str(error), "See docs/guides/gpu-cluster.md.")


def checks(address: str | None, *, with_smoke: bool) -> list[Check]:
    """Return every check's finding; the smoke training only when nothing failed before it."""
    found = [
        guarded(check)
        for check in (
            packages,
            drivers,
            cuda,
            imports,
            lambda: ray_cluster(address),
            lambda: disk(Path(tempfile.gettempdir())),
            shared_memory,
        )
    ]
    if with_smoke and not any(check.level == "fail" for check in found):
        found.append(guarded(smoke))
    return found


def guarded(check: Callable[[], Check]) -> Check:
    """Run one check; one that itself breaks is a failure with its reason."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - the doctor tells, whatever is broken
        return Check("doctor", "fail", f"{type(error).__name__}: {error}", "Report this.")


async def smoke_batch(engine: Any, step: int) -> Any:
    """Sample four short answers and return them as a batch, every second one good."""
    from swarm.server.ports import GenerateRequest, Span, TrainBatch, TrainRow

    prompt = list(range(20, 28))
    rows: list[TrainRow] = []
    for index in range(4):
        request = GenerateRequest(
            f"smoke-{step}-{index}", prompt, 6, 1.0, [], f"{step}/{index}", f"{index}"
        )
        answer = await engine.generate(request)
        span = Span(len(prompt), len(prompt) + len(answer.token_ids), 1.0)
        sign = 1.0 if index % 2 else -1.0
        ids = prompt + answer.token_ids
        rows.append(
            TrainRow(f"s.g/{index}/0", f"e{index}", ids, [span], answer.logprobs, sign, 0.1)
        )
    return TrainBatch(step, step, rows)


def _python(code: str, name: str = "torch and NCCL") -> str | Check:
    """Last line that a fresh interpreter prints, or a failed check."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(name, "warn", f"no answer in {IMPORT_S:.0f} s", "A slow or busy disk?")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Check(name, "fail", last, dependencies.HINT)
    return done.stdout.strip().splitlines()[-1]
