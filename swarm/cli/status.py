"""``swarm status``: what a server is doing and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.plain import plain

if TYPE_CHECKING:
    from swarm.protocol.messages import Status


def register(app: typer.Typer) -> None:
    """Add ``status`` to ``app``."""
    app.command("status")(status_command)


def status_command(
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 5.0,
) -> None:
    """Show the state, step and policy version of a server.

    Exit codes: 0 answered (whatever the state), 1 refused, 2 wrong usage, 3 no answer.
    """
    with (
        reported(as_json=as_json),
        connected(server, token_file, timeout_s=timeout_s) as client,
    ):
        status = client.status()
        print(status.model_dump_json() if as_json else "\n".join(render(status)))


def render(status: Status) -> list[str]:
    """The status as aligned lines; what is unknown is left out, except for a failure."""
    version = status.policy_version
    rows = {
        "state": status.state.value,
        "step": f"{status.step} of {status.stop_at_step}" if status.stop_at_step else status.step,
        "policy version": f"{version.n} (incarnation {version.incarnation})" if version else None,
        "waiting for": status.waiting_for or None,
        "model": status.model,
        "weights": status.fingerprint,
        "open episodes": status.open_episodes,
        "engine restarts": status.engine_restarts or None,
        "failure": status.failure,
        "controller": status.controller or None,
        "server id": status.server_id or None,
        "process": f"{status.pid} (a3r {status.version})" if status.pid else None,
    }
    lines = [f"{name:<16}{plain(str(value))}" for name, value in rows.items() if value is not None]
    return [*lines, *(f"{'warning':<16}{plain(text)}" for text in status.warnings)]
