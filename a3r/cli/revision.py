"""``a3r blueprint revisions|diff``, and the verdict on a revision: what repairs made of a client."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, hub, reported, table
from a3r.core.errors import NotFound
from a3r.core.types import ReviewStatus, RevisionState

Json = dict[str, Any]

CampaignArgument = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
]
BlueprintArgument = Annotated[
    str, typer.Argument(metavar="BLUEPRINT", help="Id, or campaign/name.")
]


def list_revisions(campaign: CampaignArgument, as_json: JsonOption = False) -> None:
    """List the changed clients of a campaign: why, by whom, and whether they are in use."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"campaigns/{segment(campaign)}/revisions")
        rows = [
            (r["blueprint"], str(r["revision"]), r["state"], r["failure"] or "", _cut(r["reason"]))
            for r in body["revisions"]
        ]
        lines = table(rows, ("blueprint", "revision", "state", "after", "why"))
        emit(body, lines if rows else ["no client was revised"], as_json=as_json)


def diff(
    blueprint: BlueprintArgument,
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="Which one; default: the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a revision changed in the client, as a unified diff."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"revisions/{segment(blueprint, slashes=True)}")
        known = {r["ordinal"]: r for r in body["revisions"]}
        number = revision or max(known, default=0)
        if number not in known:
            has = ", ".join(map(str, known)) or "none"
            raise NotFound(f"{blueprint!r} has no revision {number}", hint=f"it has: {has}")
        found = known[number]
        head = [
            f"# revision {number} of {body['blueprint']}: {found['state']} by {found['by']}",
            f"# {found['reason']}",
        ]
        emit(found, [*head, *found["diff"].splitlines()], as_json=as_json)


def decide(blueprint: str, revision: int, verdict: ReviewStatus, *, as_json: bool) -> None:
    """Approve or reject a revision that waits; called by ``a3r blueprint approve|reject --revision``."""
    from a3r.hub.client import segment

    approved = verdict is ReviewStatus.APPROVED
    state = RevisionState.APPROVED if approved else RevisionState.REJECTED
    with hub() as client:
        body: Json = {"revision": revision, "verdict": state.value, "by": getpass.getuser()}
        done = client.post(f"revisions/{segment(blueprint, slashes=True)}", body)
        line = f"{done['blueprint']}: revision {done['revision']} {done['state']}"
        emit(done, [line], as_json=as_json)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
