"""What must be right before the engine boots: packages, drivers, NCCL, Ray, vLLM, disk, shared memory, and a smoke training.

Each check answers in words and changes nothing; the smoke training boots the engine for two updates of the tiny model.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
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
IMPORT_S, DRIVER_S = 180.0, 20.0
SHARED = Path("/dev/shm")  # noqa: S108 - looked at, not written
NO_GPU = "Without a GPU only tests run."


@dataclass(frozen=True)
class Check:
    """One finding; ``hint`` says what to do when it is not ``ok``. What could not be found out begins with ``unknown:``."""

    name: str
    level: Level
    detail: str
    hint: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


Look = Callable[[], "Check | list[Check]"]


def packages(rollout: str = "vllm") -> Check:
    """Missing and untested packages."""
    wrong = dependencies.problems(rollout)
    if wrong:
        return Check("verl packages", "fail", "; ".join(map(str, wrong)), dependencies.HINT)
    tested = ", ".join(f"{one.package} {one.low}+" for one in dependencies.REQUIRED)
    return Check("verl packages", "ok", f"all within what was tested ({tested})")


def drivers() -> Check:
    """Whether NVIDIA's driver answers, and what it drives."""
    query = "--query-gpu=name,driver_version,memory.total"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=DRIVER_S,
            check=False,
        )
    except FileNotFoundError:
        return Check("GPU driver", "warn", "unknown: there is no nvidia-smi", NO_GPU)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("GPU driver", "warn", f"unknown: nvidia-smi does not answer ({error})", NO_GPU)
    gpus = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0:
        last = (f"{done.stdout}\n{done.stderr}".strip().splitlines() or ["no output"])[-1]
        return Check("GPU driver", "warn", f"unknown: nvidia-smi says {last!r}", NO_GPU)
    if not gpus:
        return Check("GPU driver", "warn", "no GPU", NO_GPU)
    return Check("GPU driver", "ok", f"{len(gpus)} x {gpus[0]}")


def cuda() -> list[Check]:
    """Whether torch sees the GPUs, and its NCCL; in a process of its own."""
    code = (
        "import torch; n = torch.cuda.device_count();"
        "print(torch.__version__, n, '.'.join(map(str, torch.cuda.nccl.version())) if n else '-')"
    )
    answer = _python(code, "torch")
    if isinstance(answer, Check):
        return [answer, Check("NCCL", "warn", "unknown: torch does not answer")]
    version, count, nccl = answer.split()
    if count == "0":
        hint = "On a GPU machine: install the CUDA build of torch that fits the driver."
        return [
            Check("torch", "warn", f"torch {version} sees no GPU", hint),
            Check("NCCL", "warn", "unknown: torch sees no GPU", hint),
        ]
    return [
        Check("torch", "ok", f"torch {version} sees {count} GPUs"),
        Check("NCCL", "ok", f"NCCL {nccl}"),
    ]


def imports(rollout: str = "vllm") -> Check:
    """Whether verl, Ray and the rollout engine can be imported together; in a process of its own."""
    name = "verl, Ray, vLLM"
    missing = [one.wanted.package for one in dependencies.problems(rollout) if one.found is None]
    if missing:
        return Check(name, "warn", f"unknown: {', '.join(missing)} missing", dependencies.HINT)
    code = (
        f"import ray, {rollout}, verl;"
        f"print(f'verl {{verl.__version__}}, Ray {{ray.__version__}}, {rollout} {{{rollout}.__version__}}')"
    )
    answer = _python(code, name)
    return answer if isinstance(answer, Check) else Check(name, "ok", f"{answer} can be imported")


def ray_cluster(address: str | None) -> Check:
    """Whether the cluster answers and has GPUs; without an address there is nothing to ask."""
    if address is None:
        return Check("Ray cluster", "ok", "none is named: the server starts a Ray of its own")
    if dependencies.installed_version("ray") is None:
        return Check("Ray cluster", "fail", "unknown: Ray is not installed", dependencies.HINT)
    code = (
        f"import ray; ray.init(address={address!r}, log_to_driver=False);"
        "alive = [n for n in ray.nodes() if n['Alive']];"
        "print(len(alive), sum(n['Resources'].get('GPU', 0) for n in alive), "
        "ray.available_resources().get('GPU', 0))"
    )
    answer = _python(code, "Ray cluster", "Is its head there, with this version of Ray?")
    if isinstance(answer, Check):
        return answer
    nodes, gpus, free = answer.split()
    told = f"{nodes} machines, {float(gpus):g} GPUs ({float(free):g} free) at {address}"
    level: Level = "ok" if float(gpus) else "warn"
    return Check("Ray cluster", level, told, "Add machines: ray start --address=<head>:6379.")


def disk(folder: Path) -> Check:
    """Room for checkpoints: three times the weights and moments of the model, kept twice."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("disk", "warn", f"unknown: {error}", "Name the state directory: --state-dir.")
    detail = f"{free / GIB:.0f} GiB free at {folder}"
    if free < LITTLE_DISK:
        return Check("disk", "warn", detail, "A 7B checkpoint with its moments takes about 90 GiB.")
    return Check("disk", "ok", detail)


def shared_memory(place: Path = SHARED) -> Check:
    """Ray's object store and NCCL live in it; containers get 64 MiB unless told otherwise."""
    hint = "In a container: --shm-size=64g or --ipc=host."
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        return Check("shared memory", "warn", f"unknown: {error}", hint)
    detail = f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB free at {place}"
    return Check("shared memory", "ok" if usage.free >= LITTLE_SHARED else "warn", detail, hint)


def smoke(address: str | None) -> Check:
    """Boot, sample, train two updates, close; on the cluster at ``address`` when there is one."""
    from swarm.server.engine.host import EngineHost

    values = {"engine": "verl", "engine_hang_s": 900, "verl": {"ray_address": address}}
    config = TrainConfig.model_validate(values)

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


def checks(address: str | None, folder: Path, *, with_smoke: bool) -> list[Check]:
    """Return every check's finding; the smoke training only when nothing failed before it.

    ``folder`` is where checkpoints will go.
    """
    looks: tuple[Look, ...] = (
        packages,
        drivers,
        cuda,
        imports,
        lambda: ray_cluster(address),
        lambda: disk(folder),
        shared_memory,
    )
    found = [check for look in looks for check in guarded(look)]
    failed = [check.name for check in found if check.level == "fail"]
    if with_smoke and failed:
        told = f"unknown: not tried, because of {', '.join(failed)}"
        found.append(Check("smoke training", "warn", told, "Mend that first."))
    elif with_smoke:
        found += guarded(lambda: smoke(address))
    return found


def guarded(look: Look) -> list[Check]:
    """Look once; a look that itself breaks is a failure with its reason."""
    try:
        found = look()
    except Exception as error:  # noqa: BLE001 - the doctor tells, whatever is broken
        return [Check("doctor", "fail", f"{type(error).__name__}: {error}", "Report this.")]
    return found if isinstance(found, list) else [found]


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


def _python(code: str, name: str, hint: str = dependencies.HINT) -> str | Check:
    """Last line that a fresh interpreter prints, or a check that says why there is none."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(
            name, "warn", f"unknown: no answer in {IMPORT_S:.0f} s", "A slow or busy disk?"
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Check(name, "fail", last, hint)
    return done.stdout.strip().splitlines()[-1]
