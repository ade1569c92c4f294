"""``a3r worker``: start. The daemon starts the local one; a person starts one by hand on another host."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a3r.cli import new_group
from a3r.cli.edge import reported
from a3r.cli.edge import workspace as found_workspace
from a3r.core.errors import A3RError, AuthFailed

if TYPE_CHECKING:
    from a3r.core.workspace import Workspace
    from a3r.worker.hub_client import HubClient


class WorkerUsage(A3RError):
    """The options do not go together."""

    code = "usage"
    exit_code = 2


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("Workers run attempts on their host.")
    group.callback()(_keep_group)
    group.command("start")(start)
    app.add_typer(group, name="worker")


def _keep_group() -> None:
    """Keep ``start`` a command of its own."""


def start(
    hub: Annotated[
        str | None, typer.Option(help="The hub's address; default: this workspace's daemon.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the worker token (tokens never go on a command line)."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=0, help="Attempts at once; default: the number of cores.")
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option(help="The .a3r folder for attempts; default: found from here.")
    ] = None,
) -> None:
    """Run a worker in the foreground until SIGTERM or Ctrl-C; its attempts go on and are found again.

    A second signal ends the attempts too. Exit codes: 0 ended, 1 something did not end, 2 bad input.
    """
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    with reported(as_json=False):
        from a3r.cli.terminal import terminal_or_none
        from a3r.core.workspace import Workspace
        from a3r.worker.main import run_worker

        ws = Workspace.create(workspace) if workspace else found_workspace()
        clean = run_worker(
            _hub(ws, hub, token_file), ws.root, slots=slots, terminal=terminal_or_none()
        )
        if not clean:
            raise typer.Exit(1)


def _hub(ws: Workspace, url: str | None, token_file: Path | None) -> HubClient:
    from a3r.hub.ready import READY_FILE
    from a3r.hub.tokens import WORKER_TOKEN_FILE
    from a3r.worker.hub_client import HubClient, fixed, from_ready_file, read_token

    if url is None:
        # The local daemon may restart on another port: the record is read again whenever it does not answer.
        token = token_file or ws.daemon / WORKER_TOKEN_FILE
        return HubClient(from_ready_file(ws.daemon / READY_FILE, token))
    if token_file is None:
        raise WorkerUsage(
            "--hub needs --token-file.",
            hint="Copy .a3r/daemon/worker.token of the hub's workspace to this host.",
        )
    try:
        read_token(token_file)
    except (OSError, ValueError) as error:
        raise AuthFailed(
            f"No token can be read from {str(token_file)!r}: {error}.",
            hint="The file holds the worker token alone.",
        ) from error
    return HubClient(fixed(url, token_file))
