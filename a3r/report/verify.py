"""Recomputes everything in a report's folder from its records and says what that proves.

Works offline on a committed folder: no database, no drawing library. With the database it also compares the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from a3r.core.errors import A3RError, VerificationFailed
from a3r.core.hashing import bytes_hash, content_hash
from a3r.core.types import RunState
from a3r.report.differences import first_difference
from a3r.report.early_end import last_step
from a3r.report.export import records_from_store
from a3r.report.figures import figures
from a3r.report.files import encode, read_file, read_records
from a3r.report.records import Records
from a3r.report.study import Study
from a3r.report.write import FORMAT, MANIFEST, PAGE, derived_files, drawings, page_bytes

if TYPE_CHECKING:  # verifying a folder needs no database library
    from a3r.store.store import Store

CONFIRMS = "replicate"
"""Kind of the stages whose results must be new."""
UNFIT = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError),
    *(RecursionError, MemoryError, OSError),
)
"""What code says to records that contradict each other, are nested thousands deep, or hold numbers without end."""
Level: TypeAlias = Literal["nothing", "self-consistent", "equal to the database"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class VerifyReport:
    """All checks that were made, in order; the first false one is the last."""

    checks: tuple[Check, ...]
    level: Level
    """What is proven; ``nothing`` as soon as a check is false."""
    limits: str = "Self-consistent means that every number follows from the records in this folder, not that the records are true."

    @property
    def ok(self) -> bool:
        """No check is false."""
        return all(c.ok for c in self.checks)

    def require(self) -> None:
        """Raise VerificationFailed (exit code 5) when a check is false."""
        for check in self.checks:
            if not check.ok:
                raise VerificationFailed(
                    f"{check.name}: {check.detail}",
                    hint="The report was changed after it was written, or was made by another version of a3r.",
                )


def verify(folder: Path, store: Store | None = None) -> VerifyReport:
    """Verify a report's folder, offline; with the database's ``store`` also compare the records with it.

    Stops at the first false check. Raises nothing: what can not be read is a false check.
    """
    checks: list[Check] = []
    try:
        for check in _checks(folder, store):
            checks.append(check)
            if not check.ok:
                return VerifyReport(tuple(checks), "nothing")
    except A3RError as error:
        checks.append(Check("readable", ok=False, detail=error.message))
        return VerifyReport(tuple(checks), "nothing")
    except UNFIT as error:
        # records that parse but contradict each other, e.g. a run without its blueprint
        checks.append(Check("records fit together", ok=False, detail=repr(error)))
        return VerifyReport(tuple(checks), "nothing")
    level: Level = "self-consistent" if store is None else "equal to the database"
    return VerifyReport(tuple(checks), level)


def _checks(folder: Path, store: Store | None) -> Iterator[Check]:
    yield _manifest(folder)
    records = read_records(folder)
    yield Check(
        "records parse", ok=True, detail=f"{len(records.runs)} runs, {len(records.evals)} rounds"
    )
    yield _same("records are as written", encode(records), folder)
    yield _plans(records)
    study = Study(records)
    yield _complete(study)
    drawn = figures(study.analysis)
    derived = derived_files(study)
    yield _no_stranger(folder, {*derived, *(f.svg for f in drawn), PAGE, MANIFEST})
    yield _same("claims recomputed", _only(derived, "claims.json"), folder)
    yield _prose(study)
    yield _same("figure data recomputed", _only(derived, *(f.data for f in drawn)), folder)
    yield _same("report.md equals its render", _only(derived, "report.md"), folder)
    yield _same("goal", _only(derived, "goal.md"), folder)
    svgs = {f.svg: read_file(folder, f.svg) for f in drawn}
    yield _same("report.html equals its render", {PAGE: page_bytes(study, svgs)}, folder)
    yield _drawings(study, folder)
    if store is not None:
        yield _database(records, store)


def _manifest(folder: Path) -> Check:
    name = "manifest"
    try:
        manifest: Any = json.loads(read_file(folder, MANIFEST))
        version, hashes = manifest["format"], dict(manifest["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        return Check(name, ok=False, detail=f"{MANIFEST} does not parse: {error!r}")
    if version != FORMAT:
        return Check(name, ok=False, detail=_other_format(version))
    present = {p.relative_to(folder).as_posix() for p in _files(folder)} - {MANIFEST}
    if missing := sorted(set(hashes) - present):
        return Check(name, ok=False, detail=f"missing file {missing[0]!r}")
    if extra := sorted(present - set(hashes)):
        return Check(name, ok=False, detail=f"file {extra[0]!r} is not in the manifest")
    for file in sorted(hashes):
        if bytes_hash(read_file(folder, file)) != hashes[file]:
            return Check(name, ok=False, detail=_changed(folder, file))
    return Check(name, ok=True, detail=f"{len(hashes)} files, every hash matches")


def _other_format(version: object) -> str:
    return (
        f"format {version!r}; this a3r verifies {FORMAT}. Its own version of a3r verifies it; "
        "`a3r campaign report FOLDER --into NEW` renders its records by today's rules"
    )


def _changed(folder: Path, file: str) -> str:
    """Say more than "hash differs" when the render shows which line was changed."""
    detail = f"{file!r} is not the file that was written (sha256 differs)"
    try:
        derived = derived_files(Study(read_records(folder)))
    except A3RError as error:
        return f"{detail}; {error.message}"
    if file in derived:
        where = first_difference(derived[file], read_file(folder, file))
        return f"{detail}; {where}" if where else detail
    return detail


def _same(name: str, wanted: dict[str, bytes], folder: Path) -> Check:
    for file, data in wanted.items():
        where = first_difference(data, read_file(folder, file))
        if where:
            return Check(name, ok=False, detail=f"{file}: {where}")
    return Check(
        name, ok=True, detail=f"{len(wanted)} files" if len(wanted) != 1 else "equal bytes"
    )


def _plans(records: Records) -> Check:
    """Plans and blueprints are those that were hashed before anything ran."""
    name = "plans precede runs"
    for stage in records.stages:
        if content_hash(stage.plan) != stage.plan_hash:
            return Check(name, ok=False, detail=f"the plan of stage {stage.ordinal} was changed")
    for blueprint in records.blueprints:
        if content_hash(blueprint.document) != blueprint.content_hash:
            return Check(name, ok=False, detail=f"blueprint {blueprint.name!r} was changed")
    for run in records.runs:
        planned = records.stage_of(run).created_at
        for attempt in run.attempts:
            if attempt.started_at is not None and attempt.started_at < planned:
                return Check(name, ok=False, detail=f"attempt {attempt.id!r} began before its plan")
    return Check(
        name, ok=True, detail=f"{len(records.stages)} plans, {len(records.blueprints)} blueprints"
    )


def _complete(study: Study) -> Check:
    """Every run that is called succeeded has an accepted attempt, all its steps, and both rounds of that attempt."""
    name, records = "succeeded runs are complete", study.records
    for run in records.runs:
        fault = "" if run.state != RunState.SUCCEEDED else _incomplete(records, run.id)
        if fault:
            return Check(name, ok=False, detail=f"run {run.id!r}: {fault}")
    used = sum(g.gain is not None for g in study.gains)
    return Check(
        name, ok=True, detail=f"{used} of {len(study.gains)} planned runs are in the results"
    )


def _incomplete(records: Records, run_id: str) -> str:
    run = records.run(run_id)
    attempt = run.accepted()
    if attempt is None:
        return "succeeded without an accepted attempt"
    if attempt.reused and records.stage_of(run).kind == CONFIRMS:
        return f"a confirmatory stage took over a result that was known before ({attempt.reused})"
    wanted = last_step(records.blueprint(run.blueprint_id), run) or 0
    if [s.step for s in records.steps_of(run_id)] != list(range(1, wanted + 1)):
        return f"its step records are not 1 to {wanted}"
    for name in ("initial", "final"):
        found = records.round(run_id, name)
        if found is None or found.attempt_id != attempt.id:
            return f"no {name} round of the accepted attempt"
        if len(found.items) != found.planned:
            return f"the {name} round reports {len(found.items)} of {found.planned} items"
    return ""


def _prose(study: Study) -> Check:
    """A model's remarks are admissible, or the report leaves them out and says so."""
    found, name = study.synthesis, "prose states no result"
    if found.text:
        remarks = len(found.text.splitlines())
        return Check(name, ok=True, detail=f"{remarks} remarks, within the rules")
    return Check(name, ok=True, detail=f"left out: {found.left_out}" if found.left_out else "none")


def _drawings(study: Study, folder: Path) -> Check:
    """Drawn again where this machine can: with the version of matplotlib that the records name."""
    name = "drawings follow from their data"
    software: dict[str, Any] = study.records.campaign.environment.get("software") or {}
    wanted, here = software.get("matplotlib"), _version_of("matplotlib")
    if wanted is None or wanted != here:
        detail = f"not drawn again: made by matplotlib {wanted or 'of an unknown version'}, here is {here or 'none'}"
        return Check(name, ok=True, detail=detail)
    return _same(name, drawings(study), folder)


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _no_stranger(folder: Path, known: set[str]) -> Check:
    present = {p.relative_to(folder).as_posix() for p in _files(folder)}
    for what, names in (("unknown", present - known), ("missing", known - present)):
        if names:
            return Check("no other files", ok=False, detail=f"{what} file {min(names)!r}")
    return Check("no other files", ok=True, detail=f"{len(present)} files")


def _database(mine: Records, store: Store) -> Check:
    name = "records equal the database"
    try:
        stored = records_from_store(store, mine.campaign.id, like=mine.campaign)
    except A3RError as error:
        return Check(name, ok=False, detail=error.message)
    kept = encode(mine)
    for file, data in encode(stored).items():
        where = first_difference(data, kept[file])
        if where:
            return Check(name, ok=False, detail=f"{file}: {where}")
    return Check(name, ok=True, detail=f"{len(stored.runs)} runs")


def _only(contents: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: contents[name] for name in names if name in contents}


def _files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
