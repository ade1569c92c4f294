"""Blueprint <-> ``blueprint.md``: YAML 1.2 front matter that says everything, and prose for the reader. Lossless both ways."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from a3r.blueprints.model import Blueprint
from a3r.blueprints.prose import HASH_LABEL, write_prose
from a3r.blueprints.yaml import YamlProblem, dotted, dump_yaml, line_of, load_yaml
from a3r.core.errors import BlueprintError
from a3r.core.hashing import canonical_json

FENCE = "---"


def to_markdown(blueprint: Blueprint) -> str:
    """Return the file's text; ``from_markdown`` of it is the same blueprint, with both hashes.

    Raises:
        BlueprintError: a value that JSON does not have (NaN).
    """
    try:
        # Looked at before the JSON dump, which would write NaN as null without a word.
        canonical_json(blueprint.model_dump())
        prose = write_prose(blueprint)
    except (ValueError, TypeError) as err:
        raise BlueprintError(
            f"blueprint {blueprint.name!r} cannot be written: {err}", hint="numbers must be finite"
        ) from err
    return f"{FENCE}\n{dump_yaml(blueprint.model_dump(mode='json'))}{FENCE}\n\n{prose}"


def from_markdown(text: str, source: str = "blueprint.md") -> Blueprint:
    """Read the front matter of a (possibly edited) file; ``source`` names it in errors.

    Raises:
        BlueprintError: with ``details["line"]`` (from 1): no front matter, bad YAML, an unknown key, a value out of
            range, or an edit of the prose alone, which would otherwise be lost without a word.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        raise _error(source, 1, f"there is no front matter: the first line must be {FENCE!r}")
    ends = [n for n, line in enumerate(lines) if n > 0 and line.rstrip() == FENCE]
    if not ends:
        raise _error(
            source, len(lines), f"the front matter has no end: a line {FENCE!r} is missing"
        )
    # One empty line stands for the fence, so that lines are counted as in the file.
    front = "\n" + "\n".join(lines[1 : ends[0]]) + "\n"
    blueprint = _validated(front, source)
    _refuse_edited_prose(blueprint, lines, ends[0] + 1, source)
    return blueprint


def write_blueprint(path: Path, blueprint: Blueprint) -> None:
    """Write the file, UTF-8 with plain line ends on every system."""
    path.write_bytes(to_markdown(blueprint).encode())


def read_blueprint(path: Path) -> Blueprint:
    """Read a file; see ``from_markdown``.

    Raises:
        BlueprintError: also when the file cannot be read or is not UTF-8.
    """
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise _error(str(path), line, f"not UTF-8 ({err.reason})", "save it as UTF-8") from err
    except OSError as err:
        raise BlueprintError(f"{str(path)!r} cannot be read: {err.strerror}") from err
    return from_markdown(text, str(path))


def _validated(front: str, source: str) -> Blueprint:
    try:
        return Blueprint.model_validate(load_yaml(front))
    except YamlProblem as err:
        raise _error(source, err.line, err.message) from err
    except ValidationError as err:
        # A misspelt key first: the key that it should be is then missing too.
        faults = sorted(
            err.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden"
        )
        path, why = faults[0]["loc"], faults[0]["msg"]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        hint = ""
        if faults[0]["type"] == "extra_forbidden":
            why, hint = "unknown key", _nearest(path)
        message = f"{dotted(path)}: {why}{more}" if path else f"{why}{more}"
        raise _error(source, line_of(front, path), message, hint) from err


def _nearest(path: Sequence[str | int]) -> str:
    known = list(_fields(path[:-1]))
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"


def _fields(path: Sequence[str | int]) -> dict[str, Any]:
    model: type[BaseModel] = Blueprint
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return model.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    found = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)


def _refuse_edited_prose(
    blueprint: Blueprint, lines: Sequence[str], start: int, source: str
) -> None:
    # The prose names the hash it was written for. Another hash: the front matter was edited, the prose is stale, fine.
    given = [line.rstrip() for line in lines[start:]]
    if not any(line == f"{HASH_LABEL}: `{blueprint.content_hash()}`" for line in given):
        return
    prose = f"\n{write_prose(blueprint)}".replace("\r\n", "\n").split("\n")
    wanted = [line.rstrip() for line in prose]
    if _without_end(given) == _without_end(wanted):
        return
    same = 0
    while same < min(len(given), len(wanted)) and given[same] == wanted[same]:
        same += 1
    raise _error(
        source,
        start + same + 1,
        "the text below the front matter was edited, which changes nothing",
        "make the change in the front matter (purpose, hypothesis, notes, ... are there)",
    )


def _without_end(lines: list[str]) -> list[str]:
    return "\n".join(lines).rstrip("\n").split("\n")


def _error(source: str, line: int | None, message: str, hint: str = "") -> BlueprintError:
    where = f"{source}:{line}" if line else source
    return BlueprintError(f"{where}: {message}", hint=hint, line=line)
