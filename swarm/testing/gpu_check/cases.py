"""The checks, as data: what each boots, and what must hold. Every one runs in a process of its own, within its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from swarm.server.engine_verl.dependencies import installed_version

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
Probe = Literal["kit", "once", "again", "memory", "replica"]


@dataclass(frozen=True)
class Case:
    """One check. The mappings are sections of the configuration, ``gap`` bounds the difference of log-probabilities."""

    name: str
    says: str
    """What is not known before it ran, in a sentence."""
    engine: str = "verl"
    gpus: int = 1
    """GPUs it needs; with fewer it is skipped, and the report says so."""
    verl: Mapping[str, Any] = field(default_factory=dict[str, Any])
    algorithm: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asynchronous: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gap: float = 0.1
    timeout_s: float = 90.0
    probe: Probe = "once"
    """kit: the whole engine kit. once: sample, two updates. again: and a second boot from the checkpoint, which replays.
    memory: what the GPUs hold while it samples, trains and after a kill. replica: a rollout replica is killed and comes back."""
    package: str = ""
    """A package that it needs beyond the engine's own; without it it is skipped, and the report says so."""
    gpu_only: str = ""
    """Why a rehearsal on a CPU cannot boot it; it then only composes verl's configuration."""


EAGER = {f"{ROLLOUT}.enforce_eager": True, f"{ROLLOUT}.gpu_memory_utilization": 0.3}
FLOAT32 = {
    f"{ROLLOUT}.dtype": "float32",
    f"{ACTOR}.fsdp_config.mixed_precision": {
        "param_dtype": "fp32",
        "reduce_dtype": "fp32",
        "buffer_dtype": "fp32",
    },
    f"{MODEL}.override_config.attn_implementation": "sdpa",
    f"{MODEL}.use_remove_padding": False,
}


def _options(*parts: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part
    return {**others, "options": merged}


CASES: tuple[Case, ...] = (
    Case(
        "torch-cuda",
        "The embedded engine on a GPU: same kit, sampler and trainer agree.",
        engine="torch",
        gap=1e-3,
        timeout_s=60,
        probe="kit",
    ),
    Case(
        "verl-float32",
        "verl boots on a GPU; sleep and wake between sampling and training; weights go by CUDA IPC; a checkpoint comes back.",
        verl=_options(EAGER, FLOAT32),
        gap=1e-2,
        timeout_s=180,
        probe="again",
    ),
    Case(
        "verl-defaults",
        "bf16 sampling, padding removed, flash attention, CUDA graphs: verl's and vLLM's own defaults.",
        verl=_options({f"{ROLLOUT}.gpu_memory_utilization": 0.3}),
        gap=0.5,
        timeout_s=150,
    ),
    Case(
        "verl-memory",
        "GPU memory is given back while the rollout sleeps, and all of it after kill -9.",
        verl=_options(EAGER, FLOAT32),
        probe="memory",
    ),
    Case(
        "verl-replica",
        "A rollout replica that is killed leaves the GPU, and another one takes its place with the weights of now.",
        verl=_options(EAGER, FLOAT32),
        gap=1e-2,
        timeout_s=120,
        probe="replica",
    ),
    Case(
        "verl-lora",
        "LoRA: adapters are merged for the rollout, checkpoints bring them back.",
        verl=_options(EAGER, {f"{MODEL}.lora_rank": 8}),
        gap=0.5,
        timeout_s=150,
        probe="again",
    ),
    Case(
        "verl-offload",
        "Weights and moments in host memory while they are not needed, and a frozen reference model beside them.",
        verl=_options(
            EAGER,
            FLOAT32,
            {
                f"{ACTOR}.fsdp_config.param_offload": True,
                f"{ACTOR}.fsdp_config.optimizer_offload": True,
            },
        ),
        algorithm={"kl_coef": 0.01},
        gap=1e-2,
    ),
    Case(
        "verl-critic",
        "A value model on the same GPU (adv_estimator: gae).",
        verl=_options(EAGER, FLOAT32, adv_estimator="gae"),
        gap=1e-2,
    ),
    Case(
        "verl-megatron",
        "Megatron as the training backend (needs megatron-core and mbridge).",
        verl=_options(EAGER, strategy="megatron"),
        gap=0.5,
        timeout_s=150,
        package="megatron-core",
        gpu_only="Megatron needs CUDA",
    ),
    Case(
        "verl-sglang",
        "SGLang as the rollout engine (needs sglang, in an environment of its own).",
        verl=_options(rollout="sglang"),
        gap=0.5,
        timeout_s=150,
        package="sglang",
        gpu_only="SGLang has no build for a CPU",
    ),
    Case(
        "verl-two-gpus",
        "FSDP2 over two GPUs with two replicas: data-parallel sums, NCCL, episode affinity.",
        gpus=2,
        verl=_options(EAGER, FLOAT32, gpus_per_node=2),
        gap=1e-2,
    ),
    Case(
        "verl-apart",
        "A rollout on a GPU of its own: weights go by NCCL, and sampling goes on while the trainer trains.",
        gpus=2,
        verl=_options(EAGER, FLOAT32, rollout_gpus={"gpus_per_node": 1}),
        asynchronous={"enabled": True},
        gap=1e-2,
    ),
    Case(
        "verl-tensor-parallel",
        "One replica over two GPUs; weights are cut anew on the way to it.",
        gpus=2,
        verl=_options(
            EAGER, FLOAT32, {f"{ROLLOUT}.tensor_model_parallel_size": 2}, gpus_per_node=2
        ),
        gap=1e-2,
    ),
    Case(
        "verl-sequence-parallel",
        "Ulysses: one sequence over two GPUs in training.",
        gpus=2,
        verl=_options(EAGER, {f"{ACTOR}.ulysses_sequence_parallel_size": 2}, gpus_per_node=2),
        gap=0.5,
        gpu_only="it needs padding removed, and that flash attention",
    ),
)


def chosen(
    names: list[str], gpus: int, installed: Callable[[str], object] = installed_version
) -> tuple[list[Case], list[tuple[Case, str]]]:
    """Return the cases to run, and those that are skipped with why; no names = all.

    ``installed`` returns a package's version, or None.

    Raises:
        KeyError: a name is no case.
    """
    known = {case.name: case for case in CASES}
    run: list[Case] = []
    skipped: list[tuple[Case, str]] = []
    for case in [known[name] for name in names] if names else CASES:
        if case.gpus > gpus:
            skipped.append((case, f"needs {case.gpus} GPUs, there are {gpus}"))
        elif case.package and installed(case.package) is None:
            skipped.append((case, f"needs {case.package}, which is not installed"))
        else:
            run.append(case)
    return run, skipped
