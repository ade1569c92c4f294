"""Finds a base model's files and names its weights as the swarm server does, without torch."""

from __future__ import annotations

import hashlib
import json
import struct
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

BUILTIN = "builtin:"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def builtin_models() -> dict[str, Path]:
    """The models that ship with the swarm's tasks, by name."""
    root = Path(str(resources.files("swarm.tasks"))) / "models"
    return {p.parent.name: p.parent for p in sorted(root.glob("*/config.json"))}


def find_model(name: str, folder: Path) -> Path:
    """The folder of ``builtin:<name>``, or of a path (relative ones start at the goal's ``folder``).

    Raises:
        ValueError: there is none, in words for a person.
    """
    if name.startswith(BUILTIN):
        known = builtin_models()
        short = name.removeprefix(BUILTIN)
        if short in known:
            return known[short]
        near = get_close_matches(short, known, n=1)
        hint = f"did you mean '{BUILTIN}{near[0]}'?" if near else f"known: {', '.join(known)}"
        msg = f"there is no built-in model {name!r}; {hint}"
        raise ValueError(msg)
    found = (folder / Path(name).expanduser()).resolve()
    missing = [f for f in ("config.json", "tokenizer.json") if not (found / f).is_file()]
    if missing:
        msg = f"the model folder {name!r} has no {' and no '.join(missing)}; write '{BUILTIN}tiny-calc' for the shipped model"
        raise ValueError(msg)
    return found


def weights_fingerprint(folder: Path) -> str:
    """First 16 hex digits of the sha256 over names, shapes, dtypes and bytes of the weights held in float32, by name.

    Equals ``fingerprint`` of the engine (``swarm/server/engine/weights.py``) for a freshly loaded Llama-layout model; a
    test compares them. Empty when a tensor has a number format that numpy can not read.
    """
    tensors: dict[str, tuple[tuple[int, ...], bytes]] = {}
    for name in weight_files(folder):
        found = _read(folder / name)
        if found is None:
            return ""
        tensors.update(found)
    if json.loads((folder / "config.json").read_text(encoding="utf-8")).get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)
    digest = hashlib.sha256()
    for name, (shape, data) in sorted(tensors.items()):
        if not name.endswith("rotary_emb.inv_freq"):
            digest.update(f"{name}|{shape}|torch.float32|".encode())
            digest.update(data)
    return digest.hexdigest()[:16]


def weight_files(folder: Path) -> list[str]:
    """Names of the files with the weights, in order."""
    index = folder / INDEX_FILE
    if not index.is_file():
        return [WEIGHTS_FILE]
    names: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return sorted(set(names.values()))


def _read(file: Path) -> dict[str, tuple[tuple[int, ...], bytes]] | None:
    """Tensors of a safetensors file as float32 bytes: 8 bytes of length, a JSON header, the data."""
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header: dict[str, Any] = json.loads(raw[8 : 8 + length])
    found: dict[str, tuple[tuple[int, ...], bytes]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = _float32(raw[8 + length + begin : 8 + length + end], str(entry["dtype"]))
        if data is None:
            return None
        found[name] = (tuple(int(n) for n in entry["shape"]), data)
    return found


def _float32(data: bytes, dtype: str) -> bytes | None:
    if dtype == "F32":
        return data
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype("<f4").tobytes()
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).astype("<u4").tobytes()
    return None
