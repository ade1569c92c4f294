"""``swarm reap``: frees what a dead server's engine left on this machine, or on a whole Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from swarm.cli.edge import JsonOption

EXIT_SILENT = 1
LIMIT_S = 300.0


def register(app: typer.Typer) -> None:
    """Add ``reap`` to ``app``."""
    app.command("reap")(reap_command)


def reap_command(
    state_dir: Annotated[
        Path | None, typer.Option(help="State directory of the dead server, which ran here.")
    ] = None,
    nonce: Annotated[
        str | None, typer.Option(help="Its nonce instead (SWARM_ENGINE_NONCE of its processes).")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Ray cluster that it used (host:6379 or auto): every machine of it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """End processes, actors and placement groups that a dead server with the engine verl left; nothing else is touched.

    With --state-dir a server that still runs is refused; a --nonce is taken at its word. Without --address only this machine
    is looked at. Exit codes: 0 done, also when nothing was left; 1 a machine or the cluster did not answer; 2 wrong usage.
    """
    from swarm.cli.edge import reported
    from swarm.protocol.errors import ConfigError
    from swarm.server.engine_verl.nonces import state_nonce
    from swarm.server.serve import locked

    with reported(as_json=as_json), ExitStack() as held:
        if (state_dir is None) == (nonce is None) or nonce == "":
            raise ConfigError(
                "Whose engine is to be reaped?", hint="Give --state-dir or --nonce, one of them."
            )
        if state_dir is not None and not state_dir.is_dir():
            raise ConfigError(
                f"There is no state directory {str(state_dir)!r}.", hint="Check the path."
            )
        if state_dir is not None:
            held.enter_context(locked(state_dir))
        freed = _reaped(nonce or state_nonce(state_dir or Path()), address)
    if as_json:
        print(json.dumps(freed))
    else:
        print("\n".join(_lines(freed)))
    if freed["silent"]:
        raise typer.Exit(EXIT_SILENT)


def _reaped(nonce: str, address: str | None) -> dict[str, Any]:
    """What was freed. In a process of its own: only the engine's own modules import Ray."""
    from swarm.protocol.errors import EngineFailed

    command = [sys.executable, "-m", "swarm.server.engine_verl.reaping", nonce]
    try:
        done = subprocess.run(
            [*command, *([] if address is None else [address])],
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise EngineFailed(
            f"The cluster at {address!r} did not answer in {LIMIT_S:.0f} s.",
            hint="Is its head there? 'ray status --address ...' asks it.",
        ) from error
    except (IndexError, ValueError) as error:
        raise EngineFailed("The reaper ended without an answer.", hint="See above.") from error
    if "error" in told:
        raise EngineFailed(told["error"]["message"], hint=told["error"]["hint"])
    return told


def _lines(freed: dict[str, Any]) -> list[str]:
    lines = [f"placement group {name}: removed" for name in freed["groups"]]
    lines += [f"actor {name}: killed" for name in freed["actors"]]
    lines += [
        f"{where}: {len(pids)} processes killed ({', '.join(map(str, pids))})"
        for where, pids in sorted(freed["processes"].items())
    ]
    lines += [f"{where}: did not answer" for where in freed["silent"]]
    return lines or ["nothing was left"]
