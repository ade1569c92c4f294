"""``a3r campaign export``: a campaign as one file that verifies anywhere; and the check of such a file."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, reported, workspace

if TYPE_CHECKING:
    from a3r.core.workspace import Workspace
    from a3r.store.rows import CampaignRow
    from a3r.store.store import Store

Json = dict[str, Any]

GZIP = b"\x1f\x8b"
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|password|passwd|credentials?)$")


def export(
    campaign: Annotated[
        str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
    ],
    to: Annotated[Path, typer.Option("--to", help="The new file, e.g. study.tar.gz.")],
    as_json: JsonOption = False,
) -> None:
    """Pack report, records, blueprints, client code, logs and language model transcripts into one file.

    'a3r campaign verify FILE' checks it on any machine. Secrets are replaced. Before the end, the report so far is packed.
    Exit codes: 0 packed and verified, 2 no such campaign, 3 the file exists, 5 the report does not verify.
    """
    with reported(as_json=as_json):
        from a3r.report.bundle.archive import write_archive
        from a3r.report.bundle.check import verify_bundle
        from a3r.report.bundle.contents import gather
        from a3r.store.store import Store

        ws, target = workspace(), to.absolute()
        with Store.open(ws.database) as store, tempfile.TemporaryDirectory() as scratch:
            row = store.campaign(campaign)
            folder = Path(scratch) / "bundle"
            folder.mkdir()
            report = _report(store, ws, row, Path(scratch))
            made = gather(store, row.id, report, folder, _secrets(store, ws, row))
            write_archive(folder, target)
        verify_bundle(target).require()
        body: Json = {
            "campaign": row.id,
            "file": str(target),
            "bytes": target.stat().st_size,
            **made,
        }
        emit(body, _lines(body), as_json=as_json)


def is_bundle(path: Path) -> bool:
    """Whether the file begins as a .tar.gz does."""
    try:
        with path.open("rb") as file:
            return file.read(2) == GZIP
    except OSError:
        return False


def checked(path: Path) -> Json:
    """The checks of a bundle as JSON."""
    from a3r.report.bundle.check import verify_bundle

    found = verify_bundle(path)
    return {
        "ok": found.ok,
        "level": found.level,
        "limits": found.limits,
        "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in found.checks],
    }


def _report(store: Store, ws: Workspace, row: CampaignRow, scratch: Path) -> Path:
    """The campaign's own report, or one of what there is so far."""
    if row.report_path is not None and (ws.project / row.report_path).is_dir():
        return ws.project / row.report_path
    from a3r.report.export import records_from_store
    from a3r.report.write import write_report

    return write_report(records_from_store(store, row.id), scratch / "report")


def _secrets(store: Store, ws: Workspace, row: CampaignRow) -> list[str]:
    """Values that must not leave: of variables whose name says so or that a blueprint names, and the hub's own tokens."""
    from a3r.core.errors import A3RError
    from a3r.hub.tokens import HubTokens

    named = {name for b in store.blueprints(row.id) for name in b.blueprint.secret_names}
    for found in store.blueprints(row.id):
        processes = (*found.blueprint.clients, *found.blueprint.servers)
        named |= {name for p in processes for name in p.environment.secret_names}
    values = [v for k, v in os.environ.items() if k in named or _SECRET_NAME.search(k)]
    try:
        tokens = HubTokens.read(ws.daemon)
    except (A3RError, OSError):
        return values  # no daemon has ever run here
    return [*values, tokens.admin, tokens.worker]


def _lines(body: Json) -> list[str]:
    lines = [
        body["file"],
        f"{body['files']} files, {body['bytes']:,} bytes, {body['calls']} calls of a language model, {body['redactions']} secrets replaced",
    ]
    if body["cut_logs"]:
        lines.append(f"{len(body['cut_logs'])} long logs were cut to their end")
    return [*lines, f"'a3r campaign verify {Path(body['file']).name}' checks it on any machine."]
