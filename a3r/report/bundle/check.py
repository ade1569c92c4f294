"""Verifies a bundle: its files, its report, and that blueprints, code and transcripts are those that the records name."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from a3r.blueprints.artifact import unpack_tree
from a3r.blueprints.markdown import read_blueprint
from a3r.blueprints.model import Blueprint
from a3r.core.errors import A3RError
from a3r.core.hashing import bytes_hash, content_hash
from a3r.report.bundle import FORMAT, MANIFEST, REPORT, TRANSCRIPTS
from a3r.report.bundle.archive import read_archive
from a3r.report.files import read_file, read_records
from a3r.report.records import Records
from a3r.report.verify import UNFIT, Check, VerifyReport, verify

MAX_TREE_BYTES = 256 * 2**20


def verify_bundle(archive: Path) -> VerifyReport:
    """Every check, up to the first false one. Needs no workspace. Raises nothing: what can not be read is a false check."""
    with tempfile.TemporaryDirectory(prefix="a3r-bundle-") as scratch:
        folder, checks = Path(scratch), list[Check]()
        try:
            for check in _checks(archive, folder):
                checks.append(check)
                if not check.ok:
                    return VerifyReport(tuple(checks), "nothing")
        except A3RError as error:
            checks.append(Check("bundle is readable", ok=False, detail=error.message))
            return VerifyReport(tuple(checks), "nothing")
        except UNFIT as error:
            checks.append(Check("bundle fits together", ok=False, detail=repr(error)))
            return VerifyReport(tuple(checks), "nothing")
        return VerifyReport(tuple(checks), "self-consistent")


def _checks(archive: Path, folder: Path) -> Iterator[Check]:
    count = read_archive(archive, folder)
    yield Check("bundle is readable", ok=True, detail=f"{count} files")
    manifest: dict[str, Any] = json.loads(read_file(folder, MANIFEST))
    yield _files(folder, manifest)
    yield from verify(folder / REPORT).checks
    records = read_records(folder / REPORT)
    yield _campaign(manifest, records)
    yield _blueprints(folder, records)
    yield _trees(folder, "clients", _client_trees(records))
    yield _trees(folder, "evaluators", _sealed_trees(records))
    yield _transcripts(folder, records)
    yield _logs(folder, records, manifest)


def _files(folder: Path, manifest: dict[str, Any]) -> Check:
    name = "bundle's manifest"
    if manifest["format"] != FORMAT:
        detail = f"format {manifest['format']!r}; this a3r reads {FORMAT}"
        return Check(name, ok=False, detail=detail)
    hashes: dict[str, str] = dict(manifest["sha256"])
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    present -= {MANIFEST}
    for what, files in (("missing", set(hashes) - present), ("unknown", present - set(hashes))):
        if files:
            return Check(name, ok=False, detail=f"{what} file {min(files)!r}")
    for file in sorted(hashes):
        if bytes_hash(read_file(folder, file)) != hashes[file]:
            return Check(name, ok=False, detail=f"{file!r} is not the file that was packed")
    return Check(name, ok=True, detail=f"{len(hashes)} files, every hash matches")


def _campaign(manifest: dict[str, Any], records: Records) -> Check:
    same = manifest["campaign"] == records.campaign.id
    detail = records.campaign.id if same else f"the bundle says {manifest['campaign']!r}"
    return Check("bundle and report are of one campaign", ok=same, detail=detail)


def _blueprints(folder: Path, records: Records) -> Check:
    """The files that people read are the blueprints whose hashes were approved.

    Both are read by today's model: what a later version added to it is no difference. That a record's document has the
    hash that was approved is the report's own check.
    """
    name = "blueprints equal the records"
    for found in records.blueprints:
        written = read_blueprint(folder / "blueprints" / f"{found.name}.md")
        if written != Blueprint.model_validate(found.document):
            return Check(name, ok=False, detail=f"blueprint {found.name!r} differs")
    extra = {p.stem for p in (folder / "blueprints").glob("*")} - {
        b.name for b in records.blueprints
    }
    if extra:
        return Check(name, ok=False, detail=f"blueprint {min(extra)!r} is not in the records")
    return Check(name, ok=True, detail=f"{len(records.blueprints)} blueprints")


def _client_trees(records: Records) -> set[str]:
    """Of every client: the code of a further one is the first one's of some blueprint of the campaign."""
    planned = {str(c["tree_hash"]) for b in records.blueprints for c in b.document["clients"]}
    return planned | {r.tree_hash for r in records.revisions}


def _sealed_trees(records: Records) -> set[str]:
    evaluators = [b.document["evaluator"] for b in records.blueprints]
    return {str(e["source_hash"]) for e in evaluators if e.get("artifact")}


def _trees(folder: Path, kind: str, wanted: set[str]) -> Check:
    """Code that is unpacked has the tree hash that a blueprint or a revision names."""
    name = f"{kind} have the trees that the records name"
    there = {p.stem for p in (folder / kind).glob("*.tar")}
    if wanted - there:
        return Check(name, ok=False, detail=f"tree {min(wanted - there)[:12]!r} is not there")
    if there - wanted:
        return Check(name, ok=False, detail=f"nothing names tree {min(there - wanted)[:12]!r}")
    for tree in sorted(wanted):
        with tempfile.TemporaryDirectory(prefix="a3r-tree-") as scratch:
            data = read_file(folder, f"{kind}/{tree}.tar")
            found = unpack_tree(data, Path(scratch) / "tree", max_bytes=MAX_TREE_BYTES)
        if found != tree:
            return Check(name, ok=False, detail=f"{tree[:12]!r} holds other code ({found[:12]})")
    return Check(name, ok=True, detail=f"{len(wanted)} trees")


def _transcripts(folder: Path, records: Records) -> Check:
    name = "transcripts are of the recorded calls"
    lines = read_file(folder, TRANSCRIPTS).decode().split("\n")[:-1]
    calls = [json.loads(line) for line in lines]
    if [c["id"] for c in calls] != [c.id for c in records.calls]:
        return Check(name, ok=False, detail="calls are missing, added or out of order")
    proven = 0
    for call, recorded in zip(calls, records.calls, strict=True):
        if call["redacted"]:
            continue
        if content_hash(call["request"]) != recorded.request_hash:
            return Check(name, ok=False, detail=f"the request of {recorded.id!r} was changed")
        proven += 1
    detail = (
        f"{proven} of {len(calls)} requests hash to what was journalled; the others were redacted"
    )
    return Check(name, ok=True, detail=detail)


def _logs(folder: Path, records: Records, manifest: dict[str, Any]) -> Check:
    name = "logs are of the recorded attempts"
    known = {a.id for r in records.runs for a in r.attempts}
    there = {p.parent.name for p in (folder / "logs").glob("*/*.log")}
    if there - known:
        return Check(name, ok=False, detail=f"nobody knows attempt {min(there - known)!r}")
    cut = len(manifest["cut_logs"])
    return Check(name, ok=True, detail=f"of {len(there)} attempts, {cut} logs cut to their end")
