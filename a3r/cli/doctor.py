"""``a3r doctor``: look at this machine and workspace, say what is wrong and what to do. Starts and changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, reported

Json = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("doctor")(doctor)


def doctor(
    engine: Annotated[
        str | None, typer.Option(help="Look after this engine's needs too: verl (a minute).")
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="With --engine: boot it and train twice.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check Python, torch, tmux, disk, workspace, ports, daemon, workers and language model; under 10 s.

    Exit codes: 0 nothing fails (warnings allowed), 1 something fails.
    """
    with reported(as_json=as_json):
        from a3r.cli.doctor_checks import CHECKS, guarded
        from a3r.cli.doctor_engine import engine_checks

        with ThreadPoolExecutor(len(CHECKS)) as pool:
            found = list(pool.map(guarded, CHECKS))
        if engine is not None:
            found += engine_checks(engine, smoke=smoke)
        failed = [check.name for check in found if check.level == "fail"]
        body: Json = {"ok": not failed, "checks": [check.as_json() for check in found]}
        lines: list[str] = []
        for check in found:
            lines.append(f"{check.level:<4}  {check.name}: {check.detail}")
            if check.hint and check.level != "ok":
                lines.append(f"      hint: {check.hint}")
        emit(body, lines, as_json=as_json)
        if failed:
            raise typer.Exit(1)
