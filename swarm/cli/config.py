"""``swarm config``: show, check or set a server's training configuration."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError

config_app = typer.Typer(
    no_args_is_help=True, help="Show, check or set a server's training configuration."
)

SettingsArgument = Annotated[
    list[str],
    typer.Argument(
        help="A .json, .toml or .yaml file and/or key=value pairs, as in batch.tasks=16; later ones win.",
        metavar="FILE|KEY=VALUE...",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group ``config`` to ``app``."""
    app.add_typer(config_app, name="config")


@config_app.command("show")
def show(
    server: ServerOption = None, token_file: TokenFileOption = None, as_json: JsonOption = False
) -> None:
    """Show the server's training configuration, defaults included.

    Exit codes: 0 shown, 1 refused, 2 wrong usage, 3 no answer.
    """
    with reported(as_json=as_json), connected(server, token_file) as client:
        config = client.config()
        print(config.model_dump_json() if as_json else "\n".join(flat_lines(config)))


@config_app.command("check")
def check(settings: SettingsArgument, as_json: JsonOption = False) -> None:
    """Check settings without a server and show the whole configuration that they make.

    Exit codes: 0 valid, 2 not.
    """
    with reported(as_json=as_json):
        config = validated(read_settings(settings))
        print(config.model_dump_json() if as_json else "\n".join(flat_lines(config)))


@config_app.command("set")
def set_command(
    settings: SettingsArgument,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the configuration of an OFFLINE server and show what changed.

    A file replaces the whole configuration (what it leaves out becomes the default); key=value pairs alone change the
    server's present one. Exit codes: 0 set (also when nothing changed), 1 refused, 2 wrong usage, 3 no answer.
    """
    with reported(as_json=as_json), connected(server, token_file) as client:
        from swarm.protocol.errors import StateError

        base: dict[str, Any] = {}
        if all("=" in item for item in settings):
            try:
                base = client.config().model_dump(mode="json")
            except StateError:  # none was set yet: start from the defaults
                base = {}
        changes = client.configure(validated(read_settings(settings, base)))
        if as_json:
            print(json.dumps([c.model_dump(mode="json") for c in changes]))
            return
        for change in changes:
            print(f"{change.key}: {change.old!r} -> {change.new!r}")
        if not changes:
            print("Nothing changed.", file=sys.stderr)


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
            data = _read_file(Path(item))
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
    return list(_flat(config.model_dump(mode="json"), ""))


def _flat(section: dict[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    for key, value in section.items():
        if isinstance(value, dict):
            lines += _flat(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key} = {json.dumps(value)}")
    return lines


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


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        data: Any = _parse(path, text)
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}.",
            hint="Give a file, or pairs like batch.tasks=16.",
        ) from error
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} cannot be parsed: {error}.", hint="") from error
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
