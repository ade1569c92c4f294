"""The folder ``checkpoints`` of a state directory: names, sweeping what nobody needs, mending what a crash left half done.

A checkpoint is written beside its place and renamed (``.<name>.<pid>.tmp``); one that is replaced is renamed away first
(``.<name>.<pid>.old``). Anything else in the folder is somebody's own and is left alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

_OURS = re.compile(r"^[0-9a-f]{12}-step-\d{6,}$")
_DRAFT = re.compile(r"^\.[0-9a-f]{12}-step-\d{6,}\.\d+\.(tmp|old)$")


def folder_name(incarnation: str, step: int) -> str:
    """Return the name of the checkpoint of ``step`` of a run."""
    return f"{incarnation}-step-{step:06d}"


def sweep(root: Path, keep: Iterable[Path]) -> list[Path]:
    """Delete every checkpoint and draft in ``root`` that is neither in ``keep`` nor holds one of those; return them.

    No checkpoint may be being written meanwhile. A folder that cannot be deleted is left for the next time.
    """
    kept = {path.resolve() for path in keep}
    gone: list[Path] = []
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        is_ours = _OURS.match(path.name) or _DRAFT.match(path.name)
        if not is_ours or any(k.is_relative_to(path.resolve()) for k in kept):
            continue
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            gone.append(path)
    return gone


def mend(folder: Path) -> bool:
    """Say whether the checkpoint ``folder`` is there; one that a crash left renamed away is put back first."""
    if folder.is_dir():
        return True
    moved = sorted(folder.parent.glob(f".{folder.name}.*.old"))
    if not moved:
        return False
    moved[-1].rename(folder)
    return True
