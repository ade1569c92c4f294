"""``a3r blueprint``: list show approve reject, revisions diff."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli import revision as revisions
from a3r.cli.edge import JsonOption, emit, fields, hub, reported, table
from a3r.cli.revision import diff, list_revisions
from a3r.core.errors import A3RError
from a3r.core.types import ReviewStatus

if TYPE_CHECKING:
    from a3r.hub.client import HubClient

Json = dict[str, Any]

CampaignArgument = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
]
BlueprintArgument = Annotated[
    str, typer.Argument(metavar="BLUEPRINT", help="Id, or campaign/name.")
]
TargetArgument = Annotated[
    str | None, typer.Argument(metavar="BLUEPRINT", help="Id, or campaign/name.")
]
StageOption = Annotated[
    str | None,
    typer.Option("--stage", metavar="CAMPAIGN", help="All of a campaign's that await a verdict."),
]
HashOption = Annotated[
    str | None,
    typer.Option(
        "--hash", help="The content hash that you read; refused when it has changed since."
    ),
]


RevisionOption = Annotated[
    int | None,
    typer.Option("--revision", min=1, help="The verdict is on this revision of its client."),
]


class ReviewUsage(A3RError):
    """Neither or both of a blueprint and a stage were named."""

    code = "usage"
    exit_code = 2


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("Planned experiments, and your verdict on them.")
    group.command("list")(list_blueprints)
    group.command("show")(show)
    group.command("approve")(approve)
    group.command("reject")(reject)
    group.command("revisions")(list_revisions)
    group.command("diff")(diff)
    app.add_typer(group, name="blueprint")


def list_blueprints(campaign: CampaignArgument, as_json: JsonOption = False) -> None:
    """List a campaign's blueprints with their review status."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"campaigns/{segment(campaign)}/blueprints")
        rows = [
            (b["name"], b["review"], f"v{b['version']}", _pairs(b["factors"]), _seeds(b["seeds"]))
            for b in body["blueprints"]
        ]
        lines = table(rows, ("blueprint", "review", "version", "factors", "seeds"))
        emit(body, lines if rows else ["no blueprint yet"], as_json=as_json)


def _pairs(values: Json) -> str:
    return " ".join(f"{k}={v}" for k, v in values.items())


def _seeds(seeds: list[int]) -> str:
    return " ".join(map(str, seeds))


def show(blueprint: BlueprintArgument, as_json: JsonOption = False) -> None:
    """Show one blueprint: what it asks, what it predicts, all of its settings, and its reviews."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"blueprints/{segment(blueprint, slashes=True)}")
        emit(body, blueprint_screen(body), as_json=as_json)


def blueprint_screen(body: Json) -> list[str]:
    """The blueprint's Markdown face when there is one, with its hashes and reviews before it."""
    from a3r.blueprints.markdown import to_markdown
    from a3r.blueprints.model import Blueprint

    blueprint = Blueprint.model_validate(body["blueprint"])
    head = fields(
        [
            ("blueprint", f"{body['campaign_id']}/{body['name']} (version {body['version']})"),
            ("id", body["id"]),
            ("review", body["review"]),
            ("content hash", body["content_hash"]),
            ("cell hash", body["cell_hash"]),
            ("client", body["artifact_sha"]),
        ]
    )
    reviews = [f"  {r['verdict']} by {r['by']} {r['note']}".rstrip() for r in body["reviews"]]
    return [
        *head,
        *(["reviews", *reviews] if reviews else []),
        "",
        *to_markdown(blueprint).splitlines(),
    ]


def approve(
    blueprint: TargetArgument = None,
    stage: StageOption = None,
    content_hash: HashOption = None,
    note: Annotated[str, typer.Option(help="Kept with the verdict.")] = "",
    revision: RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve one blueprint, or with --stage all that await a verdict. An approval binds to the content's hash.

    With --revision: let runs use this changed client (`a3r blueprint diff` shows it).
    """
    if revision is not None:
        _decide_revision(ReviewStatus.APPROVED, blueprint, stage, revision, as_json=as_json)
        return
    _decide(ReviewStatus.APPROVED, blueprint, stage, content_hash, note, as_json=as_json)


def reject(
    blueprint: TargetArgument = None,
    stage: StageOption = None,
    content_hash: HashOption = None,
    note: Annotated[str, typer.Option(help="Why; kept with the verdict.")] = "",
    changes: Annotated[
        bool, typer.Option("--changes", help="Ask for changes; not a final no.")
    ] = False,
    revision: RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject one blueprint, or with --stage all that await a verdict; --changes asks for another version.

    With --revision: this changed client is not used; the runs that need it end as failed.
    """
    if revision is not None:
        _decide_revision(ReviewStatus.REJECTED, blueprint, stage, revision, as_json=as_json)
        return
    verdict = ReviewStatus.CHANGES_REQUESTED if changes else ReviewStatus.REJECTED
    _decide(verdict, blueprint, stage, content_hash, note, as_json=as_json)


def _decide(
    verdict: ReviewStatus,
    blueprint: str | None,
    stage: str | None,
    content_hash: str | None,
    note: str,
    *,
    as_json: bool,
) -> None:
    with reported(as_json=as_json):
        if (blueprint is None) == (stage is None):
            raise ReviewUsage(
                "Name one blueprint, or a campaign with --stage.",
                hint="e.g. a3r blueprint approve --stage CAMPAIGN",
            )
        if stage is not None and content_hash is not None:
            raise ReviewUsage(
                "--hash names one content; it does not go with --stage.",
                hint="Approve each blueprint by its name with the hash that you read.",
            )
        body: Json = {"verdict": verdict.value, "by": getpass.getuser(), "note": note}
        if content_hash is not None:
            body["content_hash"] = content_hash
        with hub() as client:
            done = _send(client, blueprint, stage, body)
        lines = [
            f"{r['name']}: {r['verdict']} ({r['content_hash'][:12]})" for r in done["reviewed"]
        ]
        emit(done, lines, as_json=as_json)


def _decide_revision(
    verdict: ReviewStatus,
    blueprint: str | None,
    stage: str | None,
    revision: int,
    *,
    as_json: bool,
) -> None:
    with reported(as_json=as_json):
        if blueprint is None or stage is not None:
            raise ReviewUsage(
                "--revision is of one blueprint.",
                hint="e.g. a3r blueprint approve CAMPAIGN/NAME --revision 1",
            )
        revisions.decide(blueprint, revision, verdict, as_json=as_json)


def _send(client: HubClient, blueprint: str | None, stage: str | None, body: Json) -> Json:
    from a3r.hub.client import segment

    if stage is not None:
        return client.post(f"campaigns/{segment(stage)}/review", body)
    return client.post(f"blueprints/{segment(blueprint or '', slashes=True)}/review", body)
