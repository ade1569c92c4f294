"""A checkpoint folder: a Hugging Face model folder that also holds the optimizer and the version.

Written beside its place and renamed, so that a folder of that name is always whole. There is no random state to keep:
sampling noise is keyed by the request, and the optimizer draws none.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from swarm.protocol.errors import CheckpointFailed, ConfigError
from swarm.server.engine.model import Llama
from swarm.server.engine.weights import INDEX_FILE, WEIGHTS_FILE, save_weights
from swarm.triggers import Point, hit

OPTIMIZER_FILE = "optimizer.pt"
STATE_FILE = "swarm_state.json"
TORCH_WRITER = ("inline_container", "PytorchStreamWriter")
SKIPPED_SUFFIXES = (
    ".safetensors",
    ".bin",
    ".pt",
    ".gguf",
    ".md",
)  # other weights, and a model card that would not be true


@dataclass(frozen=True)
class CheckpointState:
    """What the version file says."""

    step: int
    policy_version: int
    fingerprint: str


def write_checkpoint(
    folder: Path,
    model: Llama,
    optimizer: torch.optim.Optimizer,
    state: CheckpointState,
    source: Path,
) -> None:
    """Write a whole checkpoint at ``folder``; one that is there already is replaced.

    ``source`` is the folder the model came from: its small files (config, tokenizer, template) are copied.

    Raises:
        CheckpointFailed: It could not be written. What was there before stays, and no half of the new one is left.
    """
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with _failing_as_checkpoint(staging, folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        _copy_small_files(source, staging)
        save_weights(model, staging)
        torch.save(optimizer.state_dict(), staging / OPTIMIZER_FILE)
        (staging / STATE_FILE).write_text(json.dumps(asdict(state), indent=2) + "\n", "utf-8")
        _sync(staging)
        hit(Point.SAVE_WRITTEN)
        _swap(staging, folder)


def read_state(folder: Path) -> CheckpointState:
    """Read the version file.

    Raises:
        ConfigError: The folder is not a checkpoint.
    """
    try:
        raw: dict[str, Any] = json.loads((folder / STATE_FILE).read_text("utf-8"))
        return CheckpointState(
            int(raw["step"]), int(raw["policy_version"]), str(raw["fingerprint"])
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{str(folder)!r} is not a checkpoint of this server: {error!r}.",
            hint="Give a folder that the server itself has saved.",
        ) from error


def load_optimizer(folder: Path, optimizer: torch.optim.Optimizer) -> None:
    """Restore the moments; learning rate and betas stay those that ``optimizer`` was made with."""
    saved = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
    wanted = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": saved["state"], "param_groups": wanted})


@contextmanager
def _failing_as_checkpoint(staging: Path, folder: Path) -> Iterator[None]:
    """Turn what a full or broken disk makes of a write into one error, and remove the half that was written."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        # torch reports a failed write as a plain RuntimeError of its zip writer; any other one is the engine's own trouble.
        if isinstance(error, RuntimeError) and not any(w in str(error) for w in TORCH_WRITER):
            raise
        shutil.rmtree(staging, ignore_errors=True)
        raise CheckpointFailed(
            f"The checkpoint {folder.name!r} could not be written: {error}.",
            hint="Free space on the disk of the state directory; the next step saves again.",
        ) from error


def _copy_small_files(source: Path, target: Path) -> None:
    skipped = {WEIGHTS_FILE, INDEX_FILE, OPTIMIZER_FILE, STATE_FILE}
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in skipped and path.suffix not in SKIPPED_SUFFIXES:
            shutil.copyfile(path, target / path.name)


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _swap(staging: Path, folder: Path) -> None:
    """Put ``staging`` in the place of ``folder``. A directory cannot be renamed over a full one: move that away first."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
        hit(Point.SAVE_HALF_SWAPPED)
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
