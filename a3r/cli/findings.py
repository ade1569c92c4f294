"""``a3r findings``: what finished campaigns of this workspace established. Works without a daemon."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, reported, workspace

Json = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("What finished campaigns of this workspace established.")
    group.command("search")(search)
    group.command("list")(list_findings)
    app.add_typer(group, name="findings")


def search(
    words: Annotated[list[str], typer.Argument(help="Any of them; each matches by its beginning.")],
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Find earlier findings by words, the best match first. Exit codes: 0, also when nothing is found."""
    with reported(as_json=as_json):
        from a3r.store.store import Store

        with Store.open(workspace().database) as store:
            found = store.search_findings(" ".join(words), limit)
        _show([row.model_dump(mode="json") for row in found], as_json=as_json)


def list_findings(
    campaign: Annotated[
        str | None, typer.Argument(metavar="CAMPAIGN", help="Only of this one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the findings, newest campaign first."""
    with reported(as_json=as_json):
        from a3r.store.store import Store

        with Store.open(workspace().database) as store:
            only = None if campaign is None else store.campaign(campaign).id
            found = store.findings(only)
        _show([row.model_dump(mode="json") for row in found], as_json=as_json)


def _show(found: list[Json], *, as_json: bool) -> None:
    lines: list[str] = []
    for row in found:
        settled = "" if row["data"].get("settled", True) else "  (open)"
        lines += [f"{row['id']}{settled}", f"  {row['text']}"]
    emit({"findings": found}, lines or ["nothing found"], as_json=as_json)
