"""Writes a report's folder: all of it or nothing, and never over an existing one."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from a3r.core.errors import HostError
from a3r.core.hashing import bytes_hash
from a3r.report.analysis import minimum
from a3r.report.figures import draw, figure_data
from a3r.report.files import encode, json_bytes
from a3r.report.numbers import stable
from a3r.report.records import Records
from a3r.report.render import claims_of, render

MANIFEST = "manifest.json"
INTERPRETATION = "interpretation.txt"
FORMAT = 1
"""Version of the folder's layout; verify refuses a newer one."""


def write_report(records: Records, out_dir: Path, interpretation: str = "") -> Path:
    """Write the report into ``out_dir`` and return the folder; a taken name gets ``-2``, ``-3``.

    The folder appears by one rename when it is complete; what was half written is removed.

    Raises:
        HostError: no room, no permission.
    """
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".report-", dir=out_dir.parent))
        try:
            _write_all(report_files(records, interpretation), scratch)
            scratch.chmod(0o755)
            return _place(scratch, out_dir)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        msg = f"the report can not be written to {str(out_dir)!r}: {error.strerror or error}"
        raise HostError(msg, hint="Make room there, or choose another folder.") from error


def derived_files(records: Records, interpretation: str = "") -> dict[str, bytes]:
    """Every file that follows from the records alone, but for the drawings and the manifest."""
    claims = claims_of(records)
    out = encode(records)
    out["goal.md"] = records.campaign.goal_text.encode()
    out["claims.json"] = json_bytes(stable([c.model_dump(mode="json") for c in claims]))
    out["report.md"] = render(records, claims, interpretation).encode()
    if interpretation:
        out[INTERPRETATION] = interpretation.encode()
    data = figure_data(records, minimum(records))
    out.update({name: json_bytes(stable(value)) for name, value in data.items()})
    return out


def report_files(records: Records, interpretation: str = "") -> dict[str, bytes]:
    """The whole folder: path -> bytes."""
    out = derived_files(records, interpretation)
    out.update(draw(figure_data(records, minimum(records))))
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
