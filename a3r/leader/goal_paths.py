"""What a goal points at on this machine: its model, its code base, references, the folder to write to, the interpreter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from a3r.leader.goal import GoalSpec
from a3r.leader.goal_text import Mistake
from a3r.leader.model_files import BUILTIN, find_model
from a3r.leader.tasks import TASKS

ADDRESSES = ("https://", "http://")
LONGEST_SHOWN = 80
"""Characters of a name that can not be a path."""


def path_mistakes(spec: GoalSpec, folder: Path) -> Iterator[Mistake]:
    """Everything that is pointed at and not there; relative paths start at ``folder``, the goal's."""
    impossible = list(_impossible(spec, folder))
    if impossible:
        yield from impossible
        return
    yield from _models(spec, folder)
    if spec.code and not resolved(spec.code, folder).is_dir():
        yield Mistake(
            ("code",), f"there is no folder {spec.code!r} (`code`); {_nearest(spec.code, folder)}"
        )
    for name in spec.reference:
        if not name.startswith(ADDRESSES) and not resolved(name, folder).exists():
            yield Mistake(
                ("reference",),
                f"there is no file or folder {name!r} (`reference`); {_nearest(name, folder)}",
            )
    yield from _write_to(spec, folder)
    yield from _python(spec, folder)


def resolved(name: str, folder: Path) -> Path:
    """The path that a goal's text names."""
    return (folder / Path(name).expanduser()).resolve()


def _impossible(spec: GoalSpec, folder: Path) -> Iterator[Mistake]:
    """Names that no file system takes: a zero byte, too long, a link to itself, the home of nobody."""
    named: list[tuple[tuple[str, ...], str]] = [
        (("code",), spec.code),
        *((("reference",), name) for name in spec.reference if not name.startswith(ADDRESSES)),
        (("write_to",), spec.write_to),
        (("python",), spec.python),
        *((where, name) for where, name in _named_models(spec) if not name.startswith(BUILTIN)),
    ]
    for where, name in named:
        try:
            resolved(name, folder).stat()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # told in its own words below
        except (OSError, ValueError, RuntimeError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"
            yield Mistake(where, f"{shown!r} (`{where[-1]}`) is no path: {why}")


def _named_models(spec: GoalSpec) -> list[tuple[tuple[str, ...], str]]:
    named: list[tuple[tuple[str, ...], str]] = [(("model",), spec.model)]
    for name, factor in spec.factors.items():
        if spec.place_of(name) == "model":
            named += [(("factors", name), str(factor.value(level))) for level in factor.levels]
    return named


def _models(spec: GoalSpec, folder: Path) -> Iterator[Mistake]:
    for where, model in _named_models(spec):
        try:
            find_model(model, folder)
        except ValueError as error:
            yield Mistake(where, str(error))


def _write_to(spec: GoalSpec, folder: Path) -> Iterator[Mistake]:
    if not spec.write_to:
        return
    target, where = resolved(spec.write_to, folder), ("write_to",)
    if target.exists() and not target.is_dir():
        yield Mistake(where, f"`write_to` is {spec.write_to!r}, which is a file: name a folder")
        return
    place = _existing(target)
    if not os.access(place, os.W_OK | os.X_OK):
        yield Mistake(
            where, f"nothing can be written to {spec.write_to!r} (`write_to`): no permission"
        )
    if spec.code:
        code = resolved(spec.code, folder)
        if target == code or target in code.parents:
            yield Mistake(
                where,
                f"`write_to` {spec.write_to!r} holds your code base {spec.code!r}: name a folder of its own, for "
                "example one inside it",
            )


def _python(spec: GoalSpec, folder: Path) -> Iterator[Mistake]:
    if not spec.python:
        return
    if os.sep not in spec.python:
        if shutil.which(spec.python) is None:
            yield Mistake(
                ("python",), f"there is no command {spec.python!r} (`python`) on this machine"
            )
        return
    # Not resolved: an interpreter of a virtual environment is a link, and which link matters.
    found = folder / Path(spec.python).expanduser()
    if not found.is_file() or not os.access(found, os.X_OK):
        yield Mistake(
            ("python",),
            f"there is no interpreter {spec.python!r} (`python`); {_nearest(spec.python, folder)}",
        )


def _nearest(name: str, folder: Path) -> str:
    """The part of a path that is there, so that a reader sees where it goes wrong."""
    found = _existing(resolved(name, folder))
    try:
        shown = found.relative_to(folder.resolve()).as_posix()
    except ValueError:
        shown = str(found)
    return f"it is looked for from the goal's folder, and {shown!r} is as far as it exists"


def _existing(path: Path) -> Path:
    return next((p for p in (path, *path.parents) if p.exists()), path)


def own_task(spec: GoalSpec) -> bool:
    """Whether the task is none of the shipped ones: then its client is written by a language model."""
    return spec.task not in TASKS
