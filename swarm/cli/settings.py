"""Settings from files and ``key=value`` pairs, as a training configuration and back. Asks no server."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, cast

from swarm.protocol.config import TrainConfig
from swarm.protocol.effects import flat
from swarm.protocol.errors import ConfigError


def read_settings(settings: list[str], base: dict[str, Any] | None = None) -> dict[str, Any]:
    """Files and ``key=value`` pairs in order, on top of ``base``; a file starts from nothing.

    Raises:
        ConfigError: a file cannot be read, or a key crosses a value that is no section.
    """
    data: dict[str, Any] = json.loads(json.dumps(base or {}))
    for item in settings:
        key, is_pair, value = item.partition("=")
        if is_pair:
            _put(data, key.strip().split("."), _value(value))
        else:
            data = read_mapping(Path(item))
    return data


def validated(data: dict[str, Any]) -> TrainConfig:
    """Read ``data`` as a training configuration.

    Raises:
        ConfigError: names the first wrong key, and how many more there are.
    """
    from pydantic import ValidationError

    try:
        return TrainConfig.model_validate(data)
    except ValidationError as error:
        first, *more = error.errors(include_url=False)
        where = ".".join(str(part) for part in first["loc"])
        rest = f" (and {len(more)} more)" if more else ""
        raise ConfigError(
            f"{where or 'the configuration'}: {first['msg']}{rest}.",
            hint="`swarm config check batch.tasks=8` shows every key with its default.",
        ) from None


def flat_lines(config: TrainConfig) -> list[str]:
    """One ``key = value`` line a setting, in the order of the schema; values are JSON."""
    return [f"{key} = {json.dumps(value)}" for key, value in flat(config).items()]


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    section = data
    for name in path[:-1]:
        inner = section.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"{'.'.join(path)}: {name!r} is a value, not a section.",
                hint="See `swarm config show`.",
            )
        section = cast("dict[str, Any]", inner)
    section[path[-1]] = value


def _value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, null, lists), else the text itself. Numbers like 1e-3 count as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_mapping(path: Path) -> dict[str, Any]:
    """What a file of settings holds: TOML or YAML by the end of its name, else JSON.

    Raises:
        ConfigError: it cannot be read or parsed, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data: Any = _parse(path, text)
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}.",
            hint="Give a file, or pairs like batch.tasks=16.",
        ) from error
    except ValueError as error:
        kind = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}.get(path.suffix, "JSON")
        raise ConfigError(
            f"{str(path)!r} is not {kind}: {error}.", hint="Use .json, .toml or .yaml."
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(f"{str(path)!r} holds no mapping.", hint="Write key: value pairs.")
    return cast("dict[str, Any]", data)


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix not in (".yaml", ".yml"):
        return json.loads(text)
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as error:
        raise ConfigError(
            "YAML needs the ruamel.yaml package.",
            hint="Install `a3r[campaign]`, or write the file as JSON or TOML.",
        ) from error
    try:
        return cast("Any", YAML(typ="safe")).load(text)
    except YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error
