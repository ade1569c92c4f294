"""One synthetic campaign, its report's folder, and helpers that change records honestly or not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from a3r.core.hashing import bytes_hash
from a3r.report.figures import figures
from a3r.report.records import Records
from a3r.report.study import Study
from a3r.report.write import (
    MANIFEST,
    PAGE,
    derived_files,
    manifest_bytes,
    page_bytes,
    write_report,
)
from a3r.testing.records import synthetic_records, two_condition_stages


@pytest.fixture(scope="session")
def records() -> Records:
    return synthetic_records(two_condition_stages())


@pytest.fixture(scope="session")
def written(records: Records, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(records, tmp_path_factory.mktemp("written") / "report")


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(written, tmp_path / "report"))


@pytest.fixture
def seal() -> Callable[[Path], None]:
    """Make the manifest fit the files again, as somebody who cheats would."""

    def do(folder: Path) -> None:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        manifest["sha256"] = {
            p.relative_to(folder).as_posix(): bytes_hash(p.read_bytes())
            for p in sorted(folder.rglob("*"))
            if p.is_file() and p.name != MANIFEST
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")

    return do


@pytest.fixture
def rewrite() -> Callable[[Path, Records], None]:
    """Replace the folder's content by a consistent report of other records."""

    def do(folder: Path, records: Records) -> None:
        study = Study(records)
        # drawing is the slow part
        drawn = {f.svg: (folder / f.svg).read_bytes() for f in figures(study.analysis)}
        contents = {**derived_files(study), **drawn, PAGE: page_bytes(study, drawn)}
        for name, data in {**contents, MANIFEST: manifest_bytes(contents)}.items():
            (folder / name).write_bytes(data)

    return do
