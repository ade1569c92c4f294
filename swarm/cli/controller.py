"""``swarm controller``: who steers a server; take the lease, hold it, give it back."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.plain import plain
from swarm.protocol.errors import ConfigError

controller_app = typer.Typer(
    no_args_is_help=True, help="Who steers a server: show, take or give back the controller lease."
)

AsOption = Annotated[
    str | None,
    typer.Option("--as", metavar="CLIENT_ID", help="Act as this client [env SWARM_CLIENT_ID]."),
]


def register(app: typer.Typer) -> None:
    """Add the group ``controller`` to ``app``."""
    app.add_typer(controller_app, name="controller")


@controller_app.command("show")
def show(
    server: ServerOption = None, token_file: TokenFileOption = None, as_json: JsonOption = False
) -> None:
    """Show which client holds the controller lease.

    Exit codes: 0 answered (also when nobody does), 1 refused, 2 wrong usage, 3 no answer.
    """
    import json

    with reported(as_json=as_json), connected(server, token_file) as client:
        holder = client.status().controller
        print(json.dumps({"controller": holder}) if as_json else holder_line(holder))


def holder_line(holder: str) -> str:
    """Who holds the lease, safe to show."""
    return plain(holder) or "Nobody."


@controller_app.command("take")
def take(
    client_id: AsOption = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Stay and renew it until Ctrl-C, then give it back.")
    ] = False,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the controller lease: until it ends only this client configures, starts and stops the server.

    It ends by itself when it is not renewed. Other commands act as the same client when SWARM_CLIENT_ID says so. Exit codes:
    0 taken, 1 refused (another client holds it), 2 wrong usage, 3 no answer.
    """
    with (
        reported(as_json=as_json),
        connected(server, token_file, client_id=_named(client_id)) as client,
    ):
        # Without --hold the lease must outlive this command: it is asked for, not kept.
        lease = client.controller() if hold else client.send(client.control_call(release=False))
        print(
            lease.model_dump_json()
            if as_json
            else f"{lease.client_id} controls the server for {lease.lease_s:.0f} s."
        )
        if hold:
            print("Holding it; Ctrl-C gives it back.", file=sys.stderr)
            wait_for_interrupt()


@controller_app.command("release")
def release(
    client_id: AsOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the controller lease back. Does nothing when another client holds it.

    Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no answer.
    """
    with (
        reported(as_json=as_json),
        connected(server, token_file, client_id=_named(client_id)) as client,
    ):
        lease = client.controller(release=True)
        if as_json:
            print(lease.model_dump_json())


def wait_for_interrupt() -> None:
    """Return when the person at the terminal presses Ctrl-C."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def _named(client_id: str | None) -> str:
    name = client_id or os.environ.get("SWARM_CLIENT_ID", "")
    if not name:
        raise ConfigError(
            "The controller lease is held under a name.", hint="Give --as, or set SWARM_CLIENT_ID."
        )
    return name
