"""``swarm debug``: one never-training episode of an agent, without deadlines, and its trace in readable form."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.plain import plain
from swarm.protocol.errors import SwarmError

if TYPE_CHECKING:
    from swarm.protocol.records import EpisodeTrace

EXIT_AGENT = 1


def register(app: typer.Typer) -> None:
    """Add ``debug`` to ``app``."""
    app.command("debug")(debug_command)


def debug_command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT.PY[:AGENT]",
            help="A file with an agent(episode, task), and the agent's name if it is not `agent`.",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(help="Which of the file's `tasks`: its id, or its place from 0 [default 0]."),
    ] = None,
    post_mortem: Annotated[
        bool, typer.Option("--pdb", help="Open the debugger where the agent raised.")
    ] = False,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an agent once on the live server: one eval episode, never trained, in the main thread and without deadlines.

    breakpoint() works in it. The traceback of an agent that raises comes first, on stderr, then the trace (what the server
    saw of each call) on stdout; with --json the trace alone is on stdout. Exit codes: 0 the agent returned, 1 it raised, its
    file could not be loaded or it was refused, 2 wrong usage, 3 no answer from the server.
    """
    from swarm.client.debug import NO_DEADLINE_S, choose_task, debug_agent, load_agent

    def show(error: BaseException) -> None:
        traceback.print_exception(error)
        if post_mortem and sys.stdin.isatty():
            import pdb

            pdb.post_mortem(error.__traceback__)

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s: %(message)s")
    # Compiled files are told apart by size and whole seconds: two quick edits must not run the first one twice.
    sys.dont_write_bytecode = True
    with reported(as_json=as_json):
        try:
            agent, module = load_agent(target)
            chosen = choose_task(module, task)
        except SwarmError:
            raise
        except Exception as error:  # noqa: BLE001 - the file's own code ran
            show(error)
            raise typer.Exit(EXIT_AGENT) from None
        with connected(server, token_file, chat_timeout_s=NO_DEADLINE_S) as client:
            result = debug_agent(client, agent, chosen, on_error=show)
        print(result.trace.model_dump_json() if as_json else trace_lines(result.trace))
    raise typer.Exit(EXIT_AGENT if result.error is not None else 0)


def trace_lines(trace: EpisodeTrace) -> str:
    """The trace to read; models and tools wrote much of it, so only its line ends reach the terminal as what they are."""
    from swarm.client.debug import describe

    return plain("\n".join(describe(trace)), newlines=True)
