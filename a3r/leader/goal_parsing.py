"""From a file to a goal: the one way in, which refuses what does not hold and names every mistake at once."""

from __future__ import annotations

from pathlib import Path

from a3r.core.errors import GoalError
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_rules import find_mistakes
from a3r.leader.goal_text import mistakes_error, read_front_matter, validated

LONGEST = 2**20
"""Bytes of a goal's file."""


def parse_goal(text: str, path: Path) -> GoalSpec:
    """Read a goal's text; ``path`` is where it lies (for messages, and for a model folder named in it).

    Raises:
        GoalError: everything that is wrong, one mistake a line, with its line number where it has one; ``details["mistakes"]`` lists them.
    """
    front = read_front_matter(text, path)
    spec = validated(front, path)
    mistakes = find_mistakes(spec, path.parent)
    if mistakes:
        raise mistakes_error(path, [front.placed(m) for m in mistakes])
    return spec


def read_goal(path: Path) -> GoalSpec:
    """Read ``goal.md`` (or the folder that holds one).

    Raises:
        GoalError: no such file, not UTF-8, or see ``parse_goal``.
    """
    return parse_goal(goal_text(path), goal_file(path))


def goal_file(path: Path) -> Path:
    """``path``, or its ``goal.md`` when it is a folder."""
    return path / "goal.md" if path.is_dir() else path


def goal_text(path: Path) -> str:
    """The goal's text.

    Raises:
        GoalError: no such file, no permission, too long, or not UTF-8.
    """
    file = goal_file(path)
    try:
        if file.exists() and not file.is_file():
            raise GoalError(
                f"The goal {str(file)!r} is no file.", hint="Give the path of a goal.md."
            )
        with file.open("rb") as opened:
            data = opened.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise GoalError(
                f"The goal {str(file)!r} is longer than {LONGEST} bytes.",
                hint="Put what the client shall read into files, and name them under `reference`.",
            )
        return data.decode("utf-8")
    except OSError as error:
        raise GoalError(
            f"The goal {str(file)!r} can not be read: {error.strerror}.",
            hint="Give the path of a goal.md, or of the folder that holds one.",
        ) from error
    except UnicodeDecodeError as error:
        raise GoalError(
            f"The goal {str(file)!r} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}.",
            hint="Save the file as UTF-8.",
        ) from error
