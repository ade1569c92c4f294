"""Gathers a bundle's files from a report's folder and the database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from a3r.blueprints.markdown import write_blueprint
from a3r.core.errors import NotFound, VerificationFailed
from a3r.core.hashing import bytes_hash
from a3r.report.bundle import FORMAT, MANIFEST, REPORT, TRANSCRIPTS
from a3r.report.bundle.redaction import Redactor
from a3r.report.files import json_bytes
from a3r.report.verify import verify
from a3r.store.store import Store

LOG_LIMIT = 16 * 2**20
"""Bytes of one log; of a longer one the end is kept, and the manifest says so."""


def gather(
    store: Store, campaign_id: str, report: Path, into: Path, secrets: Iterable[str] = ()
) -> dict[str, Any]:
    """Fill the empty folder ``into``; return what is in it: files, redactions, logs that were cut.

    Raises:
        VerificationFailed: the report does not verify, so it is not passed on.
    """
    verify(report, store if _is_final(report) else None).require()
    redactor = Redactor(secrets)
    shutil.copytree(report, into / REPORT)
    _blueprints(store, campaign_id, into / "blueprints")
    _trees(store, campaign_id, into)
    calls = _transcripts(store, campaign_id, into / TRANSCRIPTS, redactor)
    cut = _logs(store, campaign_id, into / "logs", redactor)
    files = sorted(p for p in into.rglob("*") if p.is_file())
    hashes = {p.relative_to(into).as_posix(): bytes_hash(p.read_bytes()) for p in files}
    manifest = {"format": FORMAT, "campaign": campaign_id, "cut_logs": cut, "sha256": hashes}
    (into / MANIFEST).write_bytes(json_bytes(manifest))
    return {
        "files": len(hashes) + 1,
        "redactions": redactor.count,
        "cut_logs": sorted(cut),
        "calls": calls,
    }


def _is_final(report: Path) -> bool:
    """Records of an unfinished campaign are not compared with a database that has moved on."""
    try:
        body: Any = json.loads((report / "records" / "campaign.json").read_bytes())
        return body["ending"] != "running"
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{str(report)!r} is no report: {error!r}"
        raise VerificationFailed(msg, hint="Write it anew with `a3r campaign report`.") from error


def _blueprints(store: Store, campaign_id: str, folder: Path) -> None:
    folder.mkdir()
    for row in store.blueprints(campaign_id):
        write_blueprint(folder / f"{row.name}.md", row.blueprint)


def _trees(store: Store, campaign_id: str, into: Path) -> None:
    """Clients by tree hash, whoever made them; sealed evaluators likewise. A tree whose artifact is gone is left out: verify tells."""
    wanted: dict[tuple[str, str], str] = {}
    for row in store.blueprints(campaign_id):
        body = row.blueprint
        # A further client's code is the first one's of some blueprint, or it could not have run.
        wanted["clients", body.clients[0].tree_hash] = row.artifact_sha
        if body.evaluator.artifact:
            wanted["evaluators", body.evaluator.source_hash] = body.evaluator.artifact
    for revision in store.revisions(campaign_id):
        wanted["clients", revision.tree_hash] = revision.artifact_sha
    for (kind, tree), sha in wanted.items():
        try:
            data = store.artifact(sha)
        except NotFound:
            continue
        (into / kind).mkdir(exist_ok=True)
        (into / kind / f"{tree}.tar").write_bytes(data)


def _transcripts(store: Store, campaign_id: str, path: Path, redactor: Redactor) -> int:
    calls = store.llm_calls(campaign_id)
    with path.open("w", encoding="utf-8") as file:
        for call in calls:
            before = redactor.count
            body = redactor.data(
                {
                    "id": call.id,
                    "purpose": call.purpose,
                    "model": call.model,
                    "state": call.state.value,
                    "request": call.request,
                    "reply": call.reply,
                    "error": call.error,
                }
            )
            body["redacted"] = redactor.count > before
            file.write(json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n")
    return len(calls)


def _logs(store: Store, campaign_id: str, folder: Path, redactor: Redactor) -> dict[str, int]:
    """Write every log; return path -> whole length of those that were cut."""
    cut: dict[str, int] = {}
    for attempt in store.attempts(campaign_id):
        for name in store.log_names(attempt.id):
            length = store.log_path(attempt.id, name).stat().st_size
            data = store.read_log(attempt.id, name, -LOG_LIMIT, LOG_LIMIT)
            target = folder / attempt.id / f"{name}.log"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(redactor.raw(data))
            if length > LOG_LIMIT:
                cut[f"logs/{attempt.id}/{name}.log"] = length
    return cut
