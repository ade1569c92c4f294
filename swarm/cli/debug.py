"""``swarm debug``: one never-training episode of an agent, without deadlines, and its trace in readable form."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Annotated

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported

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
    task_id: Annotated[str | None, typer.Option(help="Which of the file's `tasks`.")] = None,
    index: Annotated[int, typer.Option(min=0, help="Which of the file's `tasks`, by place.")] = 0,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an agent once in an eval episode without deadlines, in the main thread, so that breakpoint() works.

    The trace (what the server saw of each call) is printed, also when the agent failed. With --json the trace alone is
    on stdout. Exit codes: 0 the agent returned, 1 it raised or was refused, 2 wrong usage, 3 no answer from the server.
    """
    from swarm.client.debug import NO_DEADLINE_S, choose_task, debug_agent, describe, load_agent

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s: %(message)s")
    with reported(as_json=as_json):
        agent, module = load_agent(target)
        task = choose_task(module, task_id, index)
        with connected(server, token_file, chat_timeout_s=NO_DEADLINE_S) as client:
            client.status()  # a server that is away is told before the agent is run
            result = debug_agent(client, agent, task)
        if result.error is not None:
            traceback.print_exception(result.error)
        print(result.trace.model_dump_json() if as_json else "\n".join(describe(result.trace)))
    raise typer.Exit(EXIT_AGENT if result.error is not None else 0)
