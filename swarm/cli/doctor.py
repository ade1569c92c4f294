"""``swarm doctor``: what an engine needs of this machine, and what to do where it is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EXIT_FAILED = 1


def register(app: typer.Typer) -> None:
    """Add ``doctor`` to ``app``."""
    app.command("doctor")(doctor_command)


def doctor_command(
    engine: Annotated[str, typer.Option(help="Engine to look after: verl.")] = "verl",
    ray_address: Annotated[
        str | None, typer.Option(help="Ray cluster to ask, as verl.ray_address.")
    ] = None,
    state_dir: Annotated[
        Path, typer.Option(help="Where checkpoints will go: room is looked for there.")
    ] = Path(),
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Boot the engine and train the tiny model twice.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check packages, GPU driver, NCCL, Ray, vLLM, disk and shared memory of this machine.

    Exit codes: 0 nothing fails (warnings allowed), 1 something fails, 2 no such engine.
    """
    from swarm.cli.edge import reported
    from swarm.protocol.errors import ConfigError
    from swarm.server.engine_verl.doctor import checks

    with reported(as_json=as_json):
        if engine != "verl":
            raise ConfigError(
                f"The doctor knows nothing of the engine {engine!r}.", hint="Use --engine verl."
            )
    found = checks(ray_address, state_dir.absolute(), with_smoke=smoke)
    ok = all(check.level != "fail" for check in found)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [check.as_json() for check in found]}))
    else:
        for check in found:
            print(f"{check.level:<4}  {check.name}: {check.detail}")
            if check.hint and check.level != "ok":
                print(f"      hint: {check.hint}")
    if not ok:
        raise typer.Exit(EXIT_FAILED)
