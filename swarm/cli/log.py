"""``swarm log``: follow a server's metrics into TensorBoard, Weights & Biases, SwanLab, MLflow or trackio."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.loggers.sink import LoggerName

if TYPE_CHECKING:
    from swarm.loggers.follow import Followed


def register(app: typer.Typer) -> None:
    """Add ``log`` to ``app``."""
    app.command("log")(log_command)


def log_command(
    to: Annotated[LoggerName, typer.Option("--to", help="The logger.")],
    project: Annotated[
        str, typer.Option(help="Project (MLflow: experiment) of the logger.")
    ] = "swarm",
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder for files [default: swarm-log/<logger>].")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="wandb, swanlab: write files, to be synced later.")
    ] = False,
    uri: Annotated[
        str, typer.Option(help="MLflow: tracking address [default: a SQLite file].")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Write what there is and end.")] = False,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write each completed step's numbers to a logger, through its own library, until training is complete.

    A step is written once: started again, the command goes on after the last step that the logger has. A server that goes
    away is waited for, and a new run of the server is a new run of the logger. The logger's own settings (login, address)
    are those of its library.

    Exit codes: 0 training is complete (or --once), 1 refused by server or logger, 2 wrong usage or the library is missing,
    3 no answer at first, 130 Ctrl-C (start again to go on).
    """
    from swarm.loggers.follow import Plan, follow

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    logging.getLogger("swarm.client").setLevel(logging.WARNING)
    place = folder or Path("swarm-log") / to.value
    plan = Plan(to, project, place.expanduser(), offline=offline, uri=uri, once=once)
    with reported(as_json=as_json), connected(server, token_file) as client:
        try:
            # Libraries like to talk; stdout is ours.
            with contextlib.redirect_stdout(sys.stderr):
                done = follow(client, plan)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        _tell(to, done, as_json=as_json)


def _tell(to: LoggerName, done: Followed, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"logger": to.value, **asdict(done)}))
    else:
        print(f"{done.written} steps of {done.run_id or 'no run'} written to {to.value}")
