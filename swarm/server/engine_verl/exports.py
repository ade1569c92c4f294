"""A model as Hugging Face's files from weights that come one at a time: ``model.safetensors``, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SHARD = "5GB"


def aliases_of(named: Iterable[tuple[str, Any]]) -> set[str]:
    """Return the names of parameters that are another one under a second name (tied embeddings); the first name is kept.

    ``named`` lists duplicates too (``named_parameters(remove_duplicate=False)``).
    """
    first: dict[int, str] = {}
    return {name for name, parameter in named if first.setdefault(id(parameter), name) != name}


def write_export(folder: Path, weights: Mapping[str, Any], *, shard: str = SHARD) -> None:
    """Write the weights into ``folder`` (made when missing); what lies there under these names is overwritten.

    Raises:
        OSError: they could not be written.
    """
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    split = split_torch_state_dict_into_shards(dict(weights), max_shard_size=shard)
    for name, keys in split.filename_to_tensors.items():
        part = {key: weights[key].contiguous() for key in keys}
        save_file(part, folder / name, metadata={"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / "model.safetensors.index.json").write_text(text, "utf-8")
