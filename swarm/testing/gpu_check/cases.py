"""The checks, as data: what each boots, and what must hold. Every one runs in a process of its own, within its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"


@dataclass(frozen=True)
class Case:
    """One check. ``verl`` is the section of the configuration, ``gap`` the bound on the difference of log-probabilities."""

    name: str
    says: str
    """What is not known before it ran, in a sentence."""
    engine: str = "verl"
    gpus: int = 1
    """GPUs it needs; with fewer it is skipped, and the report says so."""
    verl: Mapping[str, Any] = field(default_factory=dict[str, Any])
    algorithm: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gap: float = 0.1
    exact: bool = False
    timeout_s: float = 180.0
    probe: str = "kit"
    """kit: the engine kit. memory: GPU memory falls while the rollout sleeps and is free after a kill."""


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


def _options(*parts: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part
    return {"options": merged}


CASES: tuple[Case, ...] = (
    Case(
        "torch-cuda",
        "The embedded engine on a GPU: same kit, sampler and trainer agree.",
        engine="torch",
        gap=1e-3,
        timeout_s=90,
    ),
    Case(
        "verl-float32",
        "verl boots on a GPU; sleep and wake between sampling and training; weights go by CUDA IPC.",
        verl=_options(EAGER, FLOAT32),
        gap=1e-2,
    ),
    Case(
        "verl-defaults",
        "bf16 sampling, padding removed, flash attention, CUDA graphs: verl's and vLLM's own defaults.",
        verl=_options({f"{ROLLOUT}.gpu_memory_utilization": 0.3}),
        gap=0.5,
        timeout_s=240,
    ),
    Case(
        "verl-memory",
        "GPU memory is given back while the rollout sleeps, and all of it after kill -9.",
        verl=_options(EAGER, FLOAT32),
        probe="memory",
    ),
    Case(
        "verl-reference",
        "A frozen reference model on the same GPU, for a KL penalty.",
        verl=_options(EAGER, FLOAT32),
        algorithm={"kl_coef": 0.01},
        gap=1e-2,
    ),
    Case(
        "verl-lora",
        "LoRA: adapters are merged for the rollout, checkpoints bring them back.",
        verl=_options(EAGER, {f"{MODEL}.lora_rank": 8, f"{MODEL}.lora.merge": True}),
        gap=0.5,
    ),
    Case(
        "verl-offload",
        "Weights and moments in host memory while they are not needed.",
        verl=_options(
            EAGER,
            FLOAT32,
            {
                f"{ACTOR}.fsdp_config.param_offload": True,
                f"{ACTOR}.fsdp_config.optimizer_offload": True,
            },
        ),
        gap=1e-2,
    ),
    Case(
        "verl-two-gpus",
        "FSDP2 over two GPUs with two replicas: data-parallel sums, NCCL, episode affinity.",
        gpus=2,
        verl={"gpus_per_node": 2, **_options(EAGER, FLOAT32)},
        gap=1e-2,
    ),
    Case(
        "verl-tensor-parallel",
        "One replica over two GPUs; weights are cut anew on the way to it.",
        gpus=2,
        verl={
            "gpus_per_node": 2,
            **_options(EAGER, FLOAT32, {f"{ROLLOUT}.tensor_model_parallel_size": 2}),
        },
        gap=1e-2,
    ),
    Case(
        "verl-sequence-parallel",
        "Ulysses: one sequence over two GPUs in training.",
        gpus=2,
        verl={
            "gpus_per_node": 2,
            **_options(EAGER, {f"{ACTOR}.ulysses_sequence_parallel_size": 2}),
        },
        gap=0.5,
    ),
    Case(
        "verl-megatron",
        "Megatron as the training backend (needs megatron-core and mbridge).",
        verl={"strategy": "megatron", **_options(EAGER)},
        gap=0.5,
        timeout_s=240,
    ),
)


def chosen(names: list[str], gpus: int) -> tuple[list[Case], list[tuple[Case, str]]]:
    """Return the cases to run, and those that are skipped with why; no names = all.

    Raises:
        KeyError: a name is no case.
    """
    known = {case.name: case for case in CASES}
    wanted = [known[name] for name in names] if names else list(CASES)
    enough: Callable[[Case], bool] = lambda case: case.gpus <= gpus  # noqa: E731
    skipped = [(c, f"needs {c.gpus} GPUs, there are {gpus}") for c in wanted if not enough(c)]
    return [case for case in wanted if enough(case)], skipped
