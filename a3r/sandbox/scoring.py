"""A sealed evaluator behind walls: a model may have written it, and it knows the answers. It reads its folder and nothing else.

No network, no other processes, no file to write but in a folder that is thrown away; where the host has no walls, the limits
of ``scoring_host`` hold.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from a3r.blueprints import scoring_host
from a3r.blueprints.model import SandboxSpec
from a3r.blueprints.sealed import SealedTask, scoring_command
from a3r.sandbox.enclosure import Enclosed, Room, enclose

WALLS = SandboxSpec(processes=16)


def enclosed_scoring(folder: Path, scratch: Path, spec: SandboxSpec = WALLS) -> Enclosed:
    """The command that runs the evaluator of ``folder``, as ``SealedTask`` takes it.

    ``scratch``: for the walls' own file and for what the evaluator writes.

    Raises:
        SandboxMissing: ``spec`` requires walls that this host cannot build.
    """
    folder = folder.resolve()
    room = Room(
        scratch=scratch,
        work=scratch / "work",
        readable=[folder, Path(scoring_host.__file__)],
        hidden=[folder.parent],
    )
    return enclose(scoring_command(folder), folder, spec, room, stdin=True)


@contextmanager
def walled_task(folder: Path) -> Generator[SealedTask]:
    """The evaluator of ``folder`` behind walls; its process ends with the block."""
    with tempfile.TemporaryDirectory(prefix="a3r-scoring-") as scratch:
        made = enclosed_scoring(folder, Path(scratch).resolve())
        with SealedTask(folder, command=made.argv, variables=made.env) as task:
            yield task
