"""Addresses under a goal's ``reference``: read once for a job and kept as files, so that a replayed conversation reads the same."""

from __future__ import annotations

import re
from pathlib import Path

from a3r.core.errors import A3RError
from a3r.core.hashing import content_hash
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_paths import ADDRESSES
from a3r.leader.jobs import JobContext

LONGEST = 80
"""Characters of a file's name."""


def pages_of(context: JobContext, goal: GoalSpec) -> dict[str, Path]:
    """Address -> the file that holds its text, in the goal's order; what can not be read says so in its file.

    A resumed job reads anew; one that is done again after a crash does not.
    """
    addresses = [name for name in goal.reference if name.startswith(ADDRESSES)]
    if not addresses or context.read_page is None:
        return {}
    job = context.job
    folder = context.workspace.root / "jobs" / f"{content_hash(job.id)[:16]}-pages-{job.round}"
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    for number, address in enumerate(addresses, start=1):
        bare = re.sub(r"[^\w.-]+", "-", address.partition("://")[2]).strip("-.")[:LONGEST]
        path = folder / f"page-{number}-{bare}.txt"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_text(_text(context, address), encoding="utf-8")
            part.replace(path)
        found[address] = path
    return found


def _text(context: JobContext, address: str) -> str:
    assert context.read_page is not None
    try:
        return context.read_page(address)
    except A3RError as error:
        return f"This page could not be read: {error.message}"
