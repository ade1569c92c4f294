"""``a3r campaign report`` and ``verify``: where a report is, and what it proves. Both work without a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli.campaign_bundle import checked, is_bundle
from a3r.cli.edge import JsonOption, emit, hub, reported, say, workspace
from a3r.core.errors import NotFound, VerificationFailed, WorkspaceError

if TYPE_CHECKING:
    from a3r.core.workspace import Workspace

Json = dict[str, Any]

REPORT_FILE = "report.md"
UNFINISHED = "running"
"""``CampaignRecord.ending`` of a report that was made with --into before the end."""


def report(
    campaign: Annotated[
        str,
        typer.Argument(
            metavar="CAMPAIGN|FOLDER",
            help="Id, unique beginning of an id, or name; with --into also a report's folder.",
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option(help="Render the records so far into this new folder (also before the end)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print where a campaign's report is, or render one anew with --into: a campaign's, or one written by an older a3r.

    Exit codes: 0 there is one, 2 no such campaign, or no report yet.
    """
    from a3r.hub.client import segment

    with reported(as_json=as_json):
        if into and (Path(campaign) / "records").is_dir():
            made = _render_again(Path(campaign), into)
            emit({"campaign": None, "report": str(made)}, [str(made)], as_json=as_json)
            return
        ws = workspace()
        with hub() as client:
            row = client.get(f"campaigns/{segment(campaign)}")
        path = _render(ws, row["id"], into) if into else report_file(ws, row["report_path"])
        if path is None:
            raise NotFound(
                f"Campaign {row['id']} has no report yet: it is {row['state']}.",
                hint="Watch it to its end, or render what there is with --into FOLDER.",
            )
        emit({"campaign": row["id"], "report": str(path)}, [str(path)], as_json=as_json)


def _render(ws: Workspace, campaign_id: str, into: Path) -> Path:
    from a3r.report.export import records_from_store
    from a3r.report.write import write_report
    from a3r.store.store import Store

    with Store.open(ws.database) as store:
        return write_report(records_from_store(store, campaign_id), into.absolute()) / REPORT_FILE


def _render_again(folder: Path, into: Path) -> Path:
    """Render a folder's records by today's rules; the folder itself is left as it is."""
    from a3r.report.files import read_older_records
    from a3r.report.write import write_report

    return write_report(read_older_records(folder), into.absolute()) / REPORT_FILE


def report_file(ws: Workspace, report_path: str | None) -> Path | None:
    """Return the absolute path of ``report.md`` for what the campaign's row names; None when it names nothing."""
    if not report_path:
        return None
    path = ws.project / report_path
    return path if path.suffix == ".md" else path / REPORT_FILE


def verify(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PATH|CAMPAIGN",
            help="A report's folder, its report.md, a bundle made by export, or a campaign.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Recompute everything in a report from its records, and from the database when that knows the campaign.

    Exit codes: 0 verified, 2 no such report, 5 a check failed (the first is named).
    """
    with reported(as_json=as_json):
        path = Path(target)
        if path.is_file() and is_bundle(path):
            folder, result = path, checked(path)
        elif path.exists():
            folder = path if path.is_dir() else path.parent
            _require_report(path, folder)
            ws = _workspace_or_none()
            result = verified(ws, folder.absolute(), _campaign_of(ws, folder))
        else:
            ws, folder, campaign_id = _report_of(target)
            result = verified(ws, folder, campaign_id)
        if not as_json:
            emit(result, render_checks(result), as_json=False)
        require_verified(result, folder)
        emit({"report": str(folder), **result}, [], as_json=as_json)


def _require_report(target: Path, folder: Path) -> None:
    if not any((folder / name).exists() for name in (REPORT_FILE, "manifest.json", "records")):
        raise NotFound(
            f"{str(target)!r} is not a report: it has neither report.md nor records.",
            hint="Give a report's folder, its report.md, or a campaign.",
        )


def _workspace_or_none() -> Workspace | None:
    try:
        return workspace()
    except WorkspaceError:
        return None


def _campaign_of(ws: Workspace | None, folder: Path) -> str | None:
    """The campaign that wrote this report if this workspace's database knows it, else None."""
    if ws is None or not ws.database.exists():
        return None
    from a3r.core.errors import A3RError
    from a3r.report.files import read_records
    from a3r.store.store import Store

    try:
        campaign = read_records(folder).campaign
        if campaign.ending == UNFINISHED:
            # What it tells was true then; the database has moved on.
            say("note: not compared with the database: the campaign was not finished")
            return None
        with Store.open(ws.database) as store:
            known = [row.id for row in store.campaigns()]
    except A3RError as error:
        # Damaged records are for the checks to tell; a database that cannot be read weakens the proof, no more.
        say(f"note: not compared with the database: {error.message}")
        return None
    except (KeyError, ValueError, TypeError, AttributeError):
        return None  # records of another shape: the checks say so
    return campaign.id if campaign.id in known else None


def _report_of(reference: str) -> tuple[Workspace, Path, str]:
    from a3r.hub.client import segment

    try:
        ws = workspace()
    except WorkspaceError as error:
        raise NotFound(
            f"There is no file or folder {reference!r}, and no workspace here to look for a campaign.",
            hint="Give the path of a report's folder.",
        ) from error
    with hub() as client:
        row = client.get(f"campaigns/{segment(reference)}")
    path = report_file(ws, row["report_path"])
    if path is None:
        raise NotFound(
            f"Campaign {row['id']} has no report yet: it is {row['state']}.",
            hint=f"'a3r campaign watch {row['id']}' shows how far it is.",
        )
    return ws, path.parent, row["id"]


def verified(ws: Workspace | None, folder: Path, campaign_id: str | None) -> Json:
    """Return the checks of ``folder`` as JSON; compared with the database when ``campaign_id`` is given."""
    from a3r.report.verify import verify as check

    if ws is None or campaign_id is None:
        found = check(folder)
    else:
        from a3r.store.store import Store

        with Store.open(ws.database) as store:
            found = check(folder, store)
    return {
        "ok": found.ok,
        "level": found.level,
        "limits": found.limits,
        "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in found.checks],
    }


def require_verified(result: Json, report: Path) -> None:
    """Raise ``VerificationFailed`` for the first false check."""
    for one in result["checks"]:
        if not one["ok"]:
            raise VerificationFailed(
                f"{report}: {one['name']}: {one['detail']}",
                hint="The report was changed after it was written, or was made by another version of a3r.",
                checks=result["checks"],
            )


def render_checks(result: Json) -> list[str]:
    """The checks for people."""
    lines = [
        f"{'ok  ' if c['ok'] else 'FAIL'}  {c['name']}: {c['detail']}" for c in result["checks"]
    ]
    if result["ok"]:
        lines += [f"verified: {result['level']}", result["limits"]]
    return lines
