"""``swarm config``: show, check or change a server's training configuration."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.cli.settings import flat_lines, read_settings, validated
from swarm.plain import plain
from swarm.protocol.config import TrainConfig

if TYPE_CHECKING:
    from swarm.client.client import SwarmClient
    from swarm.protocol.messages import ConfigChange

config_app = typer.Typer(
    no_args_is_help=True, help="Show, check or change a server's training configuration."
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


@config_app.command("log")
def log(
    server: ServerOption = None, token_file: TokenFileOption = None, as_json: JsonOption = False
) -> None:
    """Show what was changed since the run began: from which step on, when, by whom.

    Exit codes: 0 shown (also when nothing was changed), 1 refused, 2 wrong usage, 3 no answer.
    """
    from datetime import UTC, datetime

    with reported(as_json=as_json), connected(server, token_file) as client:
        records = client.config_changes()
        if as_json:
            print(json.dumps([record.model_dump(mode="json") for record in records]))
            return
        for record in records:
            at = datetime.fromtimestamp(record.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
            print(f"from step {record.step}, at {at} UTC, by {plain(record.who)}:")
            show_changes(record.changes, as_json=False, indent="  ")


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
    """Set the configuration and show what changed. A running server takes only what needs no restart (see ``diff``).

    A file replaces the whole configuration (what it leaves out becomes the default); key=value pairs alone change the
    server's present one. Exit codes: 0 set (also when nothing changed), 1 refused, 2 wrong usage, 3 no answer.
    """
    with reported(as_json=as_json), connected(server, token_file) as client:
        show_changes(client.configure(proposal(client, settings)), as_json=as_json)


@config_app.command("diff")
def diff(
    settings: SettingsArgument,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what settings would change and what each change takes: nothing but the next step, a restart, or a new run.

    Exit codes: 0 shown, 1 refused, 2 wrong usage, 3 no answer.
    """
    with reported(as_json=as_json), connected(server, token_file) as client:
        changes = client.configure(proposal(client, settings), dry_run=True)
        show_changes(changes, as_json=as_json, effects=True)


@config_app.command("apply")
def apply(
    settings: SettingsArgument,
    restart: Annotated[
        bool, typer.Option("--restart", help="Restart the engine if a change takes that.")
    ] = False,
    new_run: Annotated[
        bool, typer.Option("--new-run", help="Begin a new run at step 0 if a change takes that.")
    ] = False,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """As ``set``, and do what the changes take, as far as it is allowed: stop the engine, change, start it again.

    Exit codes: 0 applied (also when nothing changed), 1 refused or not allowed, 2 wrong usage, 3 no answer.
    """
    from swarm.cli.applying import apply_settings

    with reported(as_json=as_json), connected(server, token_file) as client:
        config = proposal(client, settings)
        changes = apply_settings(client, config, restart=restart, new_run=new_run)
        show_changes(changes, as_json=as_json, effects=True)


def proposal(client: SwarmClient, settings: list[str]) -> TrainConfig:
    """The configuration that ``settings`` ask for: pairs alone change the server's newest one (or the defaults)."""
    from swarm.protocol.errors import StateError

    base: dict[str, Any] = {}
    if all("=" in item for item in settings):
        try:
            base = client.config().model_dump(mode="json")
        except StateError:  # none was set yet: start from the defaults
            base = {}
    return validated(read_settings(settings, base))


def show_changes(
    changes: list[ConfigChange], *, as_json: bool, effects: bool = False, indent: str = ""
) -> None:
    """One line a change on stdout, or one JSON list; with ``effects`` a line also says what it takes."""
    from swarm.protocol.effects import RESTARTS

    if as_json:
        print(json.dumps([c.model_dump(mode="json") for c in changes]))
        return
    for change in changes:
        takes = f"  ({RESTARTS[change.effect]})" if effects else ""
        print(f"{indent}{change.key}: {change.old!r} -> {change.new!r}{takes}")
    if not changes:
        print("Nothing changed." if not effects else "Nothing differs.", file=sys.stderr)
