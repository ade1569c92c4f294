"""Writes a report's folder: all of it or nothing, and never over an existing one."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from a3r.core.errors import HostError
from a3r.core.hashing import bytes_hash
from a3r.report.drawing import draw
from a3r.report.faces import markdown, page
from a3r.report.figures import figure_data
from a3r.report.files import encode, json_bytes
from a3r.report.numbers import stable
from a3r.report.records import Records
from a3r.report.sections.contents import document
from a3r.report.study import Study

MANIFEST = "manifest.json"
PAGE = "report.html"
FORMAT = 2
"""Version of the folder's layout; verify refuses a newer one."""


def write_report(records: Records, out_dir: Path) -> Path:
    """Write the report into ``out_dir`` and return the folder; a taken name gets ``-2``, ``-3``.

    The folder appears by one rename when it is complete; what was half written is removed.

    Raises:
        HostError: no room, no permission.
    """
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".report-", dir=out_dir.parent))
        try:
            _write_all(report_files(records), scratch)
            scratch.chmod(0o755)
            return _place(scratch, out_dir)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        msg = f"the report can not be written to {str(out_dir)!r}: {error.strerror or error}"
        raise HostError(msg, hint="Make room there, or choose another folder.") from error


def derived_files(study: Study) -> dict[str, bytes]:
    """Every file that follows from the records alone: all but the drawings, the page that holds them, and the manifest."""
    out = encode(study.records)
    out["goal.md"] = study.records.campaign.goal_text.encode()
    out["claims.json"] = json_bytes(stable([c.model_dump(mode="json") for c in study.claims]))
    out["report.md"] = markdown(document(study)).encode()
    data = figure_data(study.records, study.analysis)
    out.update({name: json_bytes(stable(value)) for name, value in data.items()})
    return out


def drawings(study: Study) -> dict[str, bytes]:
    """Path -> SVG of every figure; needs matplotlib."""
    return draw(figure_data(study.records, study.analysis))


def page_bytes(study: Study, drawn: Mapping[str, bytes]) -> bytes:
    """``report.html`` with these drawings (path -> SVG) set in."""
    return page(document(study), drawn).encode()


def report_files(records: Records) -> dict[str, bytes]:
    """The whole folder: path -> bytes."""
    study = Study(records)
    drawn = drawings(study)
    out = {**derived_files(study), **drawn, PAGE: page_bytes(study, drawn)}
    out[MANIFEST] = manifest_bytes(out)
    return out


def manifest_bytes(contents: dict[str, bytes]) -> bytes:
    """Hashes of every file but the manifest itself."""
    hashes = {name: bytes_hash(data) for name, data in sorted(contents.items()) if name != MANIFEST}
    return json_bytes({"format": FORMAT, "sha256": hashes})


def folder_name(name: str) -> str:
    """A campaign's name as a folder name: lower case, digits and dashes; ``report`` when nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "report"


def _write_all(contents: dict[str, bytes], folder: Path) -> None:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _place(scratch: Path, out_dir: Path) -> Path:
    """Rename to the first free name; a folder that appears in between is not overwritten (rename refuses a full one)."""
    for number in range(1, 1000):
        target = out_dir if number == 1 else out_dir.with_name(f"{out_dir.name}-{number}")
        if target.exists():
            continue
        try:
            scratch.rename(target)
        except FileExistsError:
            continue
        return target
    msg = f"a thousand reports named {out_dir.name!r} exist"
    raise HostError(msg, hint="Remove old ones or choose another name.")
