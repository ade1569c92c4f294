"""``swarm list``: the servers of this user on this machine, or those that announced themselves to a hub."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm.cli.columns import aligned
from swarm.cli.edge import JsonOption, read_secret, registry_folder, reported
from swarm.plain import plain
from swarm.protocol.errors import AuthError, ServerUnreachable, SwarmError

if TYPE_CHECKING:
    from swarm.protocol.servers import ServerRecord
    from swarm.server.registry import LocalServer

LOOK_S = 2.0
"""A server of this machine that does not answer within this is listed without its state."""
COLUMNS = ("server_id", "state", "url", "model", "where")


def register(app: typer.Typer) -> None:
    """Add ``list`` to ``app``."""
    app.command("list")(list_command)


def list_command(
    hub: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="List the servers that announced themselves to this hub instead."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the hub's worker or admin token [env SWARM_HUB_TOKEN]."),
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only those that are OFFLINE and wait for somebody.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List swarm servers: id, state, address, model.

    Without --hub those of this user on this machine; a server whose process is gone is not shown. Exit codes: 0 listed (also
    when there are none), 1 refused, 2 wrong usage, 3 no answer from the hub.
    """
    with reported(as_json=as_json):
        if hub is None:
            rows = local_rows(registry_folder(os.environ))
        else:
            rows = hub_rows(hub, read_secret(token_file, "SWARM_HUB_TOKEN", "the hub's token"))
        rows = [row for row in rows if row["waiting"] or not waiting]
        print(json.dumps(rows) if as_json else "\n".join(table(rows)))


def local_rows(folder: Path) -> list[dict[str, Any]]:
    """One row a living server of this user, by state folder; each is asked for its state."""
    try:
        from swarm.server.registry import listed
    except ImportError:  # a machine with the client alone runs no servers
        return []
    return [_local_row(server) for server in listed(folder)]


def hub_rows(hub: str, token: str) -> list[dict[str, Any]]:
    """One row a server that the hub knows.

    Raises:
        ServerUnreachable: no answer that a hub would give.
        AuthError: the hub does not know the token.
    """
    return [_row(server, server.host) | {"age_s": server.age_s} for server in ask_hub(hub, token)]


def ask_hub(hub: str, token: str) -> list[Any]:
    """The hub's records, by server id; errors as for ``hub_rows``."""
    import urllib3

    from swarm.protocol.servers import HUB_ROUTE, ServerList

    away = ServerUnreachable(
        f"No hub answers at {hub!r}.", hint="Check the address and that its daemon runs."
    )
    try:
        answer = urllib3.request(
            "GET",
            hub.rstrip("/") + HUB_ROUTE,
            headers={"Authorization": f"Bearer {token}"},
            timeout=10.0,
            retries=False,
            redirect=False,
        )
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise away from error
    if answer.status in (401, 403):
        raise AuthError("The hub refuses the token.", hint="Give its worker or admin token.")
    try:
        return list(ServerList.model_validate_json(answer.data).servers)
    except ValueError as error:
        raise away from error


def _row(server: ServerRecord, where: str) -> dict[str, Any]:
    return {
        "server_id": server.server_id,
        "state": server.state.value,
        "url": server.url,
        "model": server.model,
        "where": where,
        "pid": server.pid,
        "version": server.version,
        "waiting": server.waiting,
    }


def _local_row(server: LocalServer) -> dict[str, Any]:
    from swarm.protocol.servers import ServerRecord
    from swarm.protocol.states import EngineState

    try:
        status = _ask(server)
    except SwarmError:
        facts: Mapping[str, Any] = {"state": EngineState.OFFLINE}
        known = {"state": None, "waiting": False}
    else:
        facts = {"state": status.state, "model": status.model}
        known = {"waiting": status.state is EngineState.OFFLINE}
    # Not checked again: what a file of this user says is shown as it is.
    record = ServerRecord.model_construct(
        server_id=server.server_id, url=server.url, pid=server.pid, version=server.version, **facts
    )
    return _row(record, server.state_dir) | known


def _ask(server: LocalServer) -> Any:
    from swarm.cli.edge import read_token
    from swarm.client.client import SwarmClient

    token = read_token(Path(server.state_dir) / "tokens.json")
    with SwarmClient(server.url, token, timeout_s=LOOK_S) as client:
        return client.status()


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as aligned columns under a heading; texts come from servers and are shown without control characters."""
    if not rows:
        return ["No servers."]
    cells = [[column.upper() for column in COLUMNS]]
    cells += [
        [plain(str(row[column] if row[column] is not None else "-")) for column in COLUMNS]
        for row in rows
    ]
    return aligned(cells)
