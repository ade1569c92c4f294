"""``swarm watch``: look at a server while a run goes on, on a screen, as text or as JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swarm.cli.edge import (
    JsonOption,
    ServerOption,
    TokenFileOption,
    connected,
    read_token,
    reported,
    server_url,
)
from swarm.protocol.errors import ConfigError, ServerUnreachable

if TYPE_CHECKING:
    from swarm.client import SwarmClient

LOOK_TIMEOUT_S = 5.0


def register(app: typer.Typer) -> None:
    """Add ``watch`` to ``app``."""
    app.command("watch")(watch_command)


def watch_command(
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, as text, and end.")] = False,
    every_s: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show state, progress, running episodes, groups, clients and errors of a server.

    On a terminal a screen opens (q leaves, p gives the address of an episode's page). --json prints one line a look, also
    for a look that failed; --once, or a stdout that is no terminal, prints one look as text.

    Exit codes: 0 looked, 1 refused, 2 wrong usage or the screen's library is missing, 3 no answer at the first look.
    """
    with (
        reported(as_json=as_json),
        connected(server, token_file, timeout_s=LOOK_TIMEOUT_S) as client,
    ):
        first = client.overview()  # what is wrong with address or token is told at once
        if as_json:
            print(first.model_dump_json(), flush=True)
            if not once:
                _json_lines(client, every_s)
        elif once or not sys.stdout.isatty():
            from swarm.cli.watch_look import lines

            print("\n".join(lines(first)))
        else:
            _screen(server, token_file, every_s)


def _json_lines(client: SwarmClient, every_s: float) -> None:
    """Print looks until the reader or the user leaves; a look that got no answer is a line with an error."""
    try:
        while True:
            time.sleep(every_s)
            try:
                line = client.overview().model_dump_json()
            except ServerUnreachable as error:
                line = json.dumps({"error": {"code": error.code, "message": error.message}})
            print(line, flush=True)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # What is still buffered must not be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _screen(server: str | None, token_file: Path | None, every_s: float) -> None:
    try:
        from swarm.cli.watch_app import WatchApp
    except ImportError as error:
        raise ConfigError(
            f"The screen needs the textual package ({error}).",
            hint="Install `a3r[watch]`, or use --once or --json.",
        ) from error
    from swarm.client import AsyncSwarmClient

    async def run() -> None:
        url, token = server_url(server), read_token(token_file)
        async with AsyncSwarmClient(url, token, timeout_s=LOOK_TIMEOUT_S) as client:

            async def page_of(episode_id: str) -> str:
                return (await client.page_ticket(episode_id)).url

            await WatchApp(client.overview, page_of, every_s=every_s).run_async()

    asyncio.run(run())
