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
    group = new_group("Settings: flag > environment > .a3r/config.yaml > default.")
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
        from a3r.core.settings import PREFIX, resolve_settings

        ws = workspace()
        settings = resolve_settings(env=os.environ, file=ws.config).explain()
        body: Json = {
            "workspace": str(ws.root),
            "database": str(ws.database),
            "settings": {
                key: {"value": value, "source": source, "variable": f"{PREFIX}{key.upper()}"}
                for key, value, source in settings
            },
        }
        rows = [(key, value, source, f"{PREFIX}{key.upper()}") for key, value, source in settings]
        lines = [
            *fields([("workspace", ws.root), ("database", ws.database), ("file", ws.config)]),
            "",
            *table(rows, ("setting", "value", "source", "variable")),
        ]
        emit(body, lines, as_json=as_json)
