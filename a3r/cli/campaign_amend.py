"""``a3r campaign amend``: what a person adds to a plan after its approval. The report prints it beside the plan."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, hub, reported

Json = dict[str, Any]


def amend(
    campaign: Annotated[
        str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
    ],
    what: Annotated[str, typer.Option(help="What is done otherwise than the plan says.")],
    reason: Annotated[str, typer.Option(help="Why.")],
    by: Annotated[
        str | None, typer.Option(help="Who says so; default: the user of this machine.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add to the frozen plan of the open stage, with a reason. The plan and its hash stay as they were approved.

    It is a disclosure and steers nothing: change a blueprint to run something else. Exit codes: 0 added, 2 no such campaign, 3 no
    stage is open.
    """
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body: Json = {"what": what, "reason": reason, "by": by or getpass.getuser()}
        made = client.post(f"campaigns/{segment(campaign)}/amendments", body)
        emit({"amendment": made}, [f"added to the plan of {made['stage_id']}"], as_json=as_json)
