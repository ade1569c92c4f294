"""A checkpoint folder of this engine: a Hugging Face model folder, with verl's own shards in ``verl/`` and the version beside.

Written beside its place and renamed, so that a folder of that name is always whole. Every node must see the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from swarm.protocol.errors import CheckpointFailed, ConfigError

SHARDS = "verl"
EXPORT = "huggingface"
STATE_FILE = "swarm_state.json"


@dataclass(frozen=True)
class CheckpointState:
    """What the version file says."""

    step: int
    policy_version: int
    fingerprint: str


def write_checkpoint(
    folder: Path, state: CheckpointState, source: Path, save: Callable[[str], None]
) -> None:
    """Let ``save`` write verl's shards and export, add the version and the model's small files, and put it in place.

    Raises:
        CheckpointFailed: it could not be written; what was there before stays.
    """
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        save(str(staging / SHARDS))
        _unpack_export(staging)
        _copy_small_files(source, staging)
        (staging / STATE_FILE).write_text(json.dumps(asdict(state), indent=2) + "\n", "utf-8")
        _swap(staging, folder)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise CheckpointFailed(
            f"The checkpoint {folder.name!r} could not be written: {error}.",
            hint="Free space on the disk of the state directory; the next step saves again.",
        ) from error


def read_state(folder: Path) -> CheckpointState:
    """Read the version file.

    Raises:
        ConfigError: the folder is no checkpoint of this engine.
    """
    try:
        raw = json.loads((folder / STATE_FILE).read_text("utf-8"))
        if not (folder / SHARDS).is_dir():
            raise FileNotFoundError(SHARDS)
        return CheckpointState(
            int(raw["step"]), int(raw["policy_version"]), str(raw["fingerprint"])
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{str(folder)!r} is not a checkpoint of the engine 'verl': {error!r}.",
            hint="Give a folder that the server itself has saved with this engine.",
        ) from error


def shards(folder: Path) -> str:
    """Return where verl's part of a checkpoint lies."""
    return str(folder / SHARDS)


def _unpack_export(staging: Path) -> None:
    export = staging / SHARDS / EXPORT
    for path in sorted(export.iterdir()) if export.is_dir() else []:
        path.rename(staging / path.name)


def _copy_small_files(source: Path, staging: Path) -> None:
    """Tokenizer, template and config are the model's own: what transformers writes anew may differ in what it leaves out."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in (".json", ".jinja", ".txt"):
            if path.name.endswith(".index.json"):
                continue
            shutil.copyfile(path, staging / path.name)


def _swap(staging: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
