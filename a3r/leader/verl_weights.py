"""Names a base model's weights as the engine verl does (``swarm/server/engine_verl/weights.py``), without torch, a piece at a time."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from a3r.leader.model_files import weight_files
from swarm.protocol.config import TrainConfig

PERIOD = 65_521
PIECE = 1 << 22
"""Numbers at a time: a 7B model is 28 GB as float32, and is never held as a whole."""
KNOWN = frozenset(f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Qwen2", "Qwen3"))
"""Architectures whose files name tensors as the running model does."""
TYPES = {"F32": np.dtype("<u4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


def verl_fingerprint(folder: Path, train: TrainConfig, *, piece: int = PIECE) -> str:
    """Return the fingerprint that the engine verl has at version 0; empty when it cannot be said beforehand.

    It can under FSDP2 with weights in float32 (verl's default), whatever type the files have, for layouts that are ``KNOWN``.
    """
    body = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    told = json.dumps(train.verl.options)
    plain = train.verl.strategy == "fsdp2" and "model_dtype" not in told
    if not plain or not KNOWN.intersection(body.get("architectures") or ()):
        return ""
    lines: dict[str, tuple[list[int], int]] = {}
    for name in weight_files(folder):
        found = _sums(folder / name, piece)
        if found is None:
            return ""
        lines |= found
    if body.get("tie_word_embeddings"):
        # One tensor under two names.
        lines["lm_head.weight"] = lines["model.embed_tokens.weight"]
    text = sorted(
        f"{name}|{tuple(shape)}|torch.float32|{total}" for name, (shape, total) in lines.items()
    )
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def _sums(file: Path, piece: int) -> dict[str, tuple[list[int], int]] | None:
    """Shape and checksum of each tensor of a safetensors file; None when one has another number format."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    found: dict[str, tuple[list[int], int]] = {}
    for name, entry in header.items():
        kind = TYPES.get(str(entry["dtype"]))
        if kind is None:
            return None
        begin, end = entry["data_offsets"]
        count = (end - begin) // kind.itemsize
        numbers = np.memmap(file, kind, "r", 8 + length + begin, (count,)) if count else ()
        total = sum(_part(numbers[at : at + piece], at) for at in range(0, count, piece))
        found[name] = (entry["shape"], _wrapped(total))
    return found


def _part(numbers: Any, at: int) -> int:
    """Checksum of a piece that begins at position ``at`` of its tensor."""
    if numbers.dtype == TYPES["BF16"]:
        bits = numbers.astype(np.uint32) << 16
    elif numbers.dtype == TYPES["F16"]:
        bits = numbers.astype(np.float32).view(np.uint32)
    else:
        bits = np.asarray(numbers)
    place = np.arange(at, at + bits.size, dtype=np.int64) % PERIOD + 1
    return int((bits.view(np.int32).astype(np.int64) * place).sum())


def _wrapped(total: int) -> int:
    """As a sum of signed 64-bit integers would come out."""
    return (total + 2**63) % 2**64 - 2**63
