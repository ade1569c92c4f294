"""Reads and writes a model's weights as safetensors, and names them by a fingerprint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from swarm.protocol.errors import ConfigError
from swarm.server.engine.model import Llama, LlamaConfig

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def load_model(folder: Path, *, max_len: int | None = None) -> Llama:
    """Build the model of ``folder`` in float32 and load its weights (one file, or shards with an index).

    Raises:
        ConfigError: Not a Llama model, no weights, or weights whose names or shapes do not fit config.json.
    """
    config = LlamaConfig.from_folder(folder)
    model = Llama(config, max_len=max_len)
    tensors = {name: t.to(torch.float32) for name, t in _read_tensors(folder).items()}
    if config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    tensors = {k: v for k, v in tensors.items() if not k.endswith("rotary_emb.inv_freq")}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ConfigError(
            f"The weights in {str(folder)!r} do not fit its config.json: {error}",
            hint="config.json and model.safetensors must come from the same export.",
        ) from error
    return model


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    names = [WEIGHTS_FILE]
    if (folder / INDEX_FILE).is_file():
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
        names = sorted(set(index["weight_map"].values()))
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            tensors.update(load_file(str(folder / name)))
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"Cannot read the weights {str(folder / name)!r}: {error}",
                hint="A model folder needs model.safetensors (or shards with an index file).",
            ) from error
    return tensors


def save_weights(model: Llama, folder: Path) -> None:
    """Write ``model.safetensors`` (Hugging Face names, the dtype they are held in) into an existing folder."""
    tensors = {k: v.detach().to("cpu").contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, str(folder / WEIGHTS_FILE), metadata={"format": "pt"})


def fingerprint(model: Llama) -> str:
    """First 16 hex digits of the sha256 over names, shapes, dtypes and bytes, in order of name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        host = tensor.detach().to("cpu").contiguous()
        digest.update(f"{name}|{tuple(host.shape)}|{host.dtype}|".encode())
        digest.update(host.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
