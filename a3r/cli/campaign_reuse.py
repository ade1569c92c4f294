"""``a3r campaign reuse``: results of earlier campaigns that planned runs could take over. Nothing is taken over unasked."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, hub, reported

Json = dict[str, Any]


def reuse(
    campaign: Annotated[
        str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
    ],
    accept: Annotated[
        bool, typer.Option("--accept", help="Take these results over instead of running again.")
    ] = False,
    by: Annotated[
        str | None, typer.Option(help="Who accepts; default: the user of this machine.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which planned runs were run before, same cell and same seed, by another campaign; with --accept, take them over.

    Offers stand from a stage's planning until its runs begin, so while it awaits review. The report marks each such run and counts
    it apart; confirmatory stages never have one. Exit codes: 0 done, 2 no such campaign, 3 nothing is offered.
    """
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        path = f"campaigns/{segment(campaign)}/reuse"
        if accept:
            body = client.post(path, {"by": by or getpass.getuser()})
            head, found = "accepted:", body["accepted"]
        else:
            body = client.get(path)
            head, found = "offered:", body["offers"]
        lines = [
            f"  {o['blueprint']} seed {o['seed']}: run {o['source_run']} of {o['source_campaign']}"
            for o in found
        ]
        emit(body, [head, *lines] if lines else ["nothing is offered"], as_json=as_json)
