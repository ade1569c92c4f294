"""``swarm clients``: who is connected to a server, and what each client has done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from swarm.cli.columns import aligned
from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from swarm.protocol.clients import ClientInfo

COLUMNS = (
    "client",
    "role",
    "lease",
    "open",
    "finished",
    "trained",
    "failed",
    "calls",
    "tokens",
    "latency",
    "tasks",
    "code",
)
NUMBERS = range(2, 11)
"""The columns that hold numbers."""


def register(app: typer.Typer) -> None:
    """Add ``clients`` to ``app``."""
    app.command("clients")(clients_command)


def clients_command(
    gone: Annotated[bool, typer.Option("--gone", help="Also those without a lease.")] = False,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the registered clients; figures are of this server process's life.

    lease: seconds until it ends unless the client speaks; trained: episodes that a step consumed; failed: aborted, expired or
    lost with a lease; latency: grant to finish, mean; tasks: how many it took of an ordered source. Exit codes: 0 shown,
    1 refused, 2 wrong usage, 3 no answer.
    """
    with reported(as_json=as_json), connected(server, token_file) as client:
        found = client.clients(gone=gone)
        if as_json:
            print(json.dumps([info.model_dump(mode="json") for info in found]))
        else:
            print("\n".join(table(found)))


def table(clients: Iterable[ClientInfo]) -> list[str]:
    """The clients as aligned lines under a head; control characters in an id are shown, not sent to the terminal."""
    rows = [COLUMNS, *(_cells(info) for info in clients)]
    if len(rows) == 1:
        return ["No client is registered."]
    return aligned(rows, right=NUMBERS)


def _cells(info: ClientInfo) -> tuple[str, ...]:
    latency = "-" if info.latency_mean_s is None else f"{info.latency_mean_s:.2f} s"
    return (
        plain(info.client_id),
        info.role.value,
        f"{info.lease_left_s:.0f} s" if info.lease_left_s else "gone",
        str(info.open),
        str(info.finished),
        str(info.contributed),
        str(info.failed),
        str(info.calls),
        str(info.sampled_tokens),
        latency,
        str(info.cursor.position) if info.cursor and info.cursor.position else "-",
        plain(info.code_hash) or "-",
    )
