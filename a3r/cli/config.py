"""``a3r config``: show the resolved settings and where each came from."""

from __future__ import annotations

import os
from typing import Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, fields, reported, table, workspace

Json = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("Settings: environment > .a3r/config.toml > default.")
    group.callback()(_keep_group)
    group.command("show")(show)
    app.add_typer(group, name="config")


def _keep_group() -> None:
    """Keep ``show`` a command of its own."""


def show(as_json: JsonOption = False) -> None:
    """Show every setting, its value and its source, and the folders in use. Secrets are not shown.

    Exit codes: 0 shown, 2 no workspace here, or a setting is wrong.
    """
    with reported(as_json=as_json):
        from a3r.cli.settings import resolve, variable

        ws = workspace()
        settings = resolve(ws.root, os.environ)
        body: Json = {
            "workspace": str(ws.root),
            "database": str(ws.database),
            "settings": {
                s.name: {"value": s.value, "source": s.source, "variable": variable(s.name)}
                for s in settings
            },
        }
        rows = [(s.name, f"{s.value:g}", s.source, variable(s.name), s.meaning) for s in settings]
        lines = [
            *fields([("workspace", ws.root), ("database", ws.database)]),
            "",
            *table(rows, ("setting", "value", "source", "variable", "meaning")),
        ]
        emit(body, lines, as_json=as_json)
