"""``a3r worker``: start, list, token, drain. The daemon starts the local one; `a3r host add` one on another host."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, reported, table
from a3r.cli.edge import hub as hub_client
from a3r.cli.edge import workspace as found_workspace
from a3r.core.errors import A3RError, AuthFailed

if TYPE_CHECKING:
    from a3r.worker.gpus import GpuOffice
    from a3r.worker.hub_client import HubClient

Json = dict[str, Any]
TOKEN_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")


class WorkerUsage(A3RError):
    """The options do not go together."""

    code = "usage"
    exit_code = 2


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("Workers run attempts on their host.")
    for name, command in {
        "start": start,
        "list": list_workers,
        "token": token,
        "drain": drain,
        "resume": resume,
    }.items():
        group.command(name)(command)
    app.add_typer(group, name="worker")


HubOption = Annotated[
    str | None, typer.Option(help="The hub's address; default: this workspace's daemon.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(help="File with the worker token (tokens never go on a command line)."),
]
CaFileOption = Annotated[
    Path | None, typer.Option(help="Certificates (PEM) to trust for an https hub.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(min=0, help="Attempts at once; default: one a GPU, else one a core."),
]
GpusOption = Annotated[
    str | None, typer.Option(help="GPUs that it may give away, as 0-3,6; default: all.")
]
IdleExitSOption = Annotated[
    float | None, typer.Option(min=1, help="End after so long without an attempt.")
]
PoolOption = Annotated[str, typer.Option(hidden=True)]
PoolJobOption = Annotated[str, typer.Option(hidden=True)]
WorkspaceOption = Annotated[
    Path | None, typer.Option(help="The .a3r folder for attempts; default: found from here.")
]


def start(
    hub: HubOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    slots: SlotsOption = None,
    gpus: GpusOption = None,
    idle_exit_s: IdleExitSOption = None,
    pool: PoolOption = "",
    pool_job: PoolJobOption = "",
    workspace: WorkspaceOption = None,
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

        office = _office(gpus, of_job=bool(pool_job))
        ws = Workspace.create(workspace) if workspace else found_workspace()
        clean = run_worker(
            _hub(ws, hub, token_file, ca_file),
            ws.root,
            slots=slots,
            # A terminal outlives a cluster's job and may be another job's: what runs in it would be out of this one's bounds.
            terminal=None if pool_job else terminal_or_none(),
            gpus=office,
            idle_exit_s=idle_exit_s,
            pool=(pool, pool_job),
        )
        if not clean:
            raise typer.Exit(1)


def _office(gpus: str | None, *, of_job: bool) -> GpuOffice:
    from a3r.adapters.nvml import NvmlProbe
    from a3r.worker.allotted import VARIABLE, allotted
    from a3r.worker.gpus import GpuOffice, parse_indices

    probe = NvmlProbe()
    if of_job and gpus is None:
        given = allotted(os.environ.get(VARIABLE), GpuOffice(probe).readings())
        return GpuOffice(probe, None if given is None else frozenset(given))
    try:
        return GpuOffice(probe, None if gpus is None else parse_indices(gpus))
    except ValueError as error:
        raise WorkerUsage(
            f"--gpus: {error}.", hint="Write indices and ranges, as in 0-3,6."
        ) from error


def _hub(ws: Any, url: str | None, token_file: Path | None, ca_file: Path | None) -> HubClient:
    from a3r.core.addresses import trouble_with
    from a3r.hub.ready import READY_FILE
    from a3r.hub.tokens import WORKER_TOKEN_FILE
    from a3r.worker.hub_client import HubClient, at, from_ready_file, process_of, read_token

    if url is None:
        # The local daemon may restart on another port: the record is read again whenever it does not answer.
        own = token_file or ws.daemon / WORKER_TOKEN_FILE
        ready = ws.daemon / READY_FILE
        return HubClient(from_ready_file(ready, own), lives=process_of(ready))
    if token_file is None:
        raise WorkerUsage(
            "--hub needs --token-file.",
            hint="`a3r worker token NAME --to FILE` where the hub is makes one; copy it to this host.",
        )
    if (wrong := trouble_with(url)) is not None:
        raise WorkerUsage(f"--hub {url!r}: {wrong[0]}.", hint=wrong[1])
    _check_ca(ca_file)
    try:
        read_token(token_file)
    except (OSError, ValueError) as error:
        raise AuthFailed(
            f"No token can be read from {str(token_file)!r}: {error}.",
            hint="The file holds the worker token alone.",
        ) from error
    return at(url, token_file, ca_file=ca_file)


def _check_ca(ca_file: Path | None) -> None:
    import ssl

    try:
        if ca_file is not None:
            ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ValueError) as error:  # ssl's errors are OSErrors
        raise WorkerUsage(
            f"--ca-file {str(ca_file)!r} holds no certificate that can be read: {error}.",
            hint="It is a PEM file, as `openssl x509 -in FILE -text` reads it.",
        ) from error


def list_workers(as_json: JsonOption = False) -> None:
    """Show the workers that ever registered: host, slots, GPUs, last word, what is wanted of them."""
    with reported(as_json=as_json), hub_client() as client:
        body: Json = {"workers": client.get("daemon")["workers"]}
        rows = [_line(worker) for worker in body["workers"]]
        head = ("worker", "host", "slots", "gpus", "wanted", "last word", "trouble")
        words = table(rows, head) if rows else ["no worker has registered yet"]
        emit(body, words, as_json=as_json)


def _line(worker: Json) -> tuple[Any, ...]:
    gpus = len(worker["inventory"].get("gpus") or ())
    where = worker["host"] + (f" (pool {worker['pool']})" if worker.get("pool") else "")
    return (
        worker["id"],
        where,
        worker["slots"],
        gpus,
        worker["state"],
        f"{worker['silent_s']} s ago",
        worker.get("trouble", ""),
    )


def token(
    name: Annotated[str, typer.Argument(help="A name for the worker, as gpu1.")],
    to: Annotated[
        Path | None, typer.Option(help="File to write the token to (0600); it is not printed.")
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the token back.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a token that serves one worker, in a private file; or take one back.

    Exit codes: 0 done, 2 bad input, 3 the name has a token.
    """
    with reported(as_json=as_json):
        from a3r.hub.client import segment
        from a3r.hub.tokens import write_private

        if to is None and not revoke:
            raise WorkerUsage("A token needs a file.", hint="Add --to FILE, or --revoke.")
        if not TOKEN_NAME.match(name):
            raise WorkerUsage(
                f"{name!r} can not be the name of a token.",
                hint="Letters, digits, dot, dash, underscore and @, 100 at most, as gpu1.",
            )
        target = Path(to or "")
        if not revoke and (target.is_dir() or not os.access(target.absolute().parent, os.W_OK)):
            raise WorkerUsage(f"--to {str(target)!r} can not be written.", hint="It is a file.")
        with hub_client() as client:
            if revoke:
                body = client.delete(f"worker-tokens/{segment(name)}")
                emit(body, [f"the token {name!r} opens nothing any more"], as_json=as_json)
                return
            body = client.post("worker-tokens", {"name": name})
            try:
                write_private(target, str(body.pop("token")))
            except OSError as error:  # nobody has it: the name is free again
                client.delete(f"worker-tokens/{segment(name)}")
                raise WorkerUsage(
                    f"{str(target)!r} can not be written: {error.strerror}.",
                    hint="No token was made.",
                ) from error
        emit({**body, "file": str(target)}, [f"the token {name!r} is in {target}"], as_json=as_json)


def drain(
    worker: Annotated[str, typer.Argument(help="Id of the worker.")], as_json: JsonOption = False
) -> None:
    """Let a worker finish what it has and give it nothing new."""
    _want(worker, "draining", as_json=as_json)


def resume(
    worker: Annotated[str, typer.Argument(help="Id of the worker.")], as_json: JsonOption = False
) -> None:
    """Give a draining worker work again."""
    _want(worker, "active", as_json=as_json)


def _want(worker: str, state: str, *, as_json: bool) -> None:
    with reported(as_json=as_json), hub_client() as client:
        from a3r.hub.client import segment

        body = client.post(f"workers/{segment(worker)}/state", {"state": state})
        held = len(body["attempts"])
        emit(
            body, [f"worker {worker} is {body['state']}; it has {held} attempt(s)"], as_json=as_json
        )
