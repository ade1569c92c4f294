"""Finds a model's folder: a path in Hugging Face layout, or ``builtin:<name>`` for one shipped with the package.

Knows only files. The built-in folders lie in ``swarm/tasks/models`` of the installed distribution and are found by
location, not by import: the server never imports a task.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from swarm.protocol.errors import ConfigError

IMAGE_TOKEN_NAMES = ("image_token_id", "image_token_index")
"""What a model's config.json calls the token that stands for a picture."""

BUILTIN_PREFIX = "builtin:"


def builtin_models() -> dict[str, Path]:
    """Return the shipped model folders by name, sorted; empty when the package data was left out."""
    root = Path(str(resources.files("swarm"))) / "tasks" / "models"
    if not root.is_dir():
        return {}
    return {p.parent.name: p.parent for p in sorted(root.glob("*/config.json"))}


def resolve_model(path: str) -> Path:
    """Return the folder that ``path`` names: a local folder with a config.json, or ``builtin:<name>``.

    Raises:
        ConfigError: No such built-in model, no such folder, or a folder without ``config.json``.
    """
    if path.startswith(BUILTIN_PREFIX):
        return _builtin(path.removeprefix(BUILTIN_PREFIX))
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"Model folder {path!r} does not exist.",
            hint="Give a folder in Hugging Face layout, or 'builtin:tiny-calc'.",
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"Model folder {path!r} has no config.json.",
            hint="A model folder holds config.json, model.safetensors and tokenizer.json.",
        )
    return folder.resolve()


def text_config(folder: Path) -> dict[str, Any]:
    """Return a model's config.json, as ``with_text_half``."""
    return with_text_half(json.loads((folder / "config.json").read_text("utf-8")))


def with_text_half(config: dict[str, Any]) -> dict[str, Any]:
    """A model that reads pictures says of its text half in ``text_config`` what others say at the top; that is put on top."""
    half = config.get("text_config")
    return {**config, **half} if isinstance(half, dict) else config


def image_tokens(config: dict[str, Any]) -> list[int]:
    """Return the ids that may stand for a picture, in the order of ``IMAGE_TOKEN_NAMES``."""
    ids = (config.get(name) for name in IMAGE_TOKEN_NAMES)
    return [token for token in ids if isinstance(token, int) and token >= 0]


def _builtin(name: str) -> Path:
    known = builtin_models()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean 'builtin:{near[0]}'?" if near else f"Known: {', '.join(known) or 'none'}."
    raise ConfigError(f"There is no built-in model {name!r}.", hint=hint)
