"""Reads a goal's front matter (YAML 1.2) and turns every mistake into a sentence with its line.

Knows the shape of a goal, not what its words mean together.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from a3r.core.errors import GoalError
from a3r.leader.goal import GoalSpec

FENCE = "---"
SKELETON = """---
name: my question
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 4, 16, 64]}
metric: {name: held_out_reward, direction: maximize, items: 300}
criterion: {min_gain: 0.05, confidence: 0.95}
---"""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong."""

    where: tuple[str | int, ...]
    """Path of keys; empty = the whole file."""
    text: str


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The front matter of a goal and where its keys stand."""

    data: dict[str, Any]
    """ruamel's map, which knows where its keys stand."""
    first_line: int
    """Line of the file (from 1) at which ``data`` begins."""

    def line_of(self, where: tuple[str | int, ...]) -> int | None:
        """Line (from 1) of the deepest key of ``where`` that the file has; None when it has none of them."""
        place: Any = self.data
        line: int | None = None
        for key in where:
            try:
                if isinstance(place, CommentedMap) and key in place:
                    line = int(cast("Any", place).lc.key(key)[0])
                elif isinstance(place, CommentedSeq) and isinstance(key, int):
                    line = int(cast("Any", place).lc.item(key)[0])
                else:
                    break
            except (KeyError, TypeError, IndexError):
                break
            place = cast("Any", place)[key]
        return None if line is None else line + self.first_line

    def placed(self, mistake: Mistake) -> str:
        """The mistake as a sentence, with its line when it has one."""
        line = self.line_of(mistake.where)
        return mistake.text if line is None else f"line {line}: {mistake.text}"


def read_front_matter(text: str, path: Path) -> FrontMatter:
    """Split off and parse the front matter.

    Raises:
        GoalError: empty file, no front matter, an unclosed one, or YAML that does not parse (with the line).
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not any(line.strip() for line in lines):
        raise GoalError(
            f"The goal {str(path)!r} is empty.", hint=f"Start from this front matter:\n{SKELETON}"
        )
    start = next(i for i, line in enumerate(lines) if line.strip())
    if lines[start].rstrip() != FENCE:
        raise GoalError(
            f"The goal {str(path)!r} has no front matter, and prose alone can be read by a language model only, "
            "which this campaign does not have.",
            hint=f"Put the question as data above the prose, for example:\n{SKELETON}",
        )
    end = next((i for i in range(start + 1, len(lines)) if lines[i].rstrip() == FENCE), None)
    if end is None:
        raise GoalError(
            f"The front matter of {str(path)!r} opens at line {start + 1} and never closes.",
            hint=f"Put a line {FENCE!r} below the last key.",
        )
    data = _parse(lines[start + 1 : end], start + 2, path)
    return FrontMatter(data, start + 2)


def prose_of(text: str) -> str:
    """What stands below the front matter, stripped."""
    lines = text.removeprefix("\ufeff").splitlines()
    fences = [i for i, line in enumerate(lines) if line.rstrip() == FENCE]
    return "\n".join(lines[fences[1] + 1 :]).strip() if len(fences) > 1 else text.strip()


def _parse(lines: list[str], first_line: int, path: Path) -> dict[str, Any]:
    parser = YAML(typ="rt", pure=True)
    try:
        data: object = cast("Any", parser).load(io.StringIO("\n".join(lines) + "\n"))
    except MarkedYAMLError as error:
        found = cast("Any", error)
        mark = found.problem_mark or found.context_mark
        line = "" if mark is None else f" at line {int(mark.line) + first_line}"
        # ruamel's duplicate-key message goes on with advice for programmers; the first line says it all.
        problem = str(found.problem or found.context or "bad syntax").splitlines()[0]
        raise GoalError(
            f"The front matter of {str(path)!r} is not YAML{line}: {problem}.",
            hint="Check indentation, brackets and quotes there.",
        ) from error
    except YAMLError as error:
        raise GoalError(
            f"The front matter of {str(path)!r} is not YAML: {str(error).splitlines()[0]}.",
            hint="Check for control characters and unclosed quotes.",
        ) from error
    if not isinstance(data, CommentedMap):
        raise GoalError(
            f"The front matter of {str(path)!r} holds no keys.",
            hint=f"It needs, for example:\n{SKELETON}",
        )
    return cast("dict[str, Any]", data)


def validated(front: FrontMatter, path: Path) -> GoalSpec:
    """The goal of a front matter, by shape.

    Raises:
        GoalError: unknown keys (with the nearest known one), missing keys, wrong types, numbers out of range.
    """
    try:
        return GoalSpec.model_validate(_plain(front.data))
    except ValidationError as error:
        mistakes = [front.placed(m) for m in _mistakes(error, front.data)]
        raise mistakes_error(path, mistakes) from error


def _plain(value: Any) -> Any:
    """Without ruamel's subclasses of numbers, strings, lists and maps."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(v) for v in cast("list[Any]", value)]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def mistakes_error(path: Path, mistakes: list[str]) -> GoalError:
    """One error for all mistakes."""
    if len(mistakes) == 1:
        message = f"{path.name}, {mistakes[0]}"
    else:
        listed = "\n".join(f"  - {m}" for m in mistakes)
        message = f"{path.name} has {len(mistakes)} mistakes:\n{listed}"
    return GoalError(
        message,
        hint=f"Edit {str(path)!r}; `a3r campaign check` reads it again without starting anything.",
        mistakes=mistakes,
    )


MISSING_TEXT = {
    "metric": "there is no metric: add `metric: {name: held_out_reward, direction: maximize, items: 300}`",
    "question": "there is no question: add `question: {kind: minimum, factor: train_batch_size}`",
    "factors": "there are no factors: add `factors: {train_batch_size: {levels: [1, 4, 16, 64]}}`",
    "task": "there is no task: add `task: calculator`",
    "model": "there is no model: add `model: builtin:tiny-calc`",
    "name": "there is no name: add `name: a few words`",
}


def _mistakes(error: ValidationError, data: dict[str, Any]) -> Iterator[Mistake]:
    seen: set[str] = set()
    for item in error.errors():
        where = _keys_only(item["loc"], data)
        name = ".".join(str(k) for k in where)
        text = _sentence(item["type"], item["msg"], item.get("input"), where, name)
        if name + text not in seen:  # a union reports every member that did not fit
            seen.add(name + text)
            yield Mistake(where, text)


def _keys_only(loc: tuple[str | int, ...], data: Any) -> tuple[str | int, ...]:
    """``loc`` without the union members' names that pydantic adds; missing last keys are kept."""
    keys: list[str | int] = []
    place: Any = data
    for part in loc:
        if isinstance(place, dict) and part in place:
            place = cast("dict[Any, Any]", place)[part]
        elif isinstance(place, list) and isinstance(part, int):
            place = cast("list[Any]", place)[part]
        elif not isinstance(place, dict):
            continue
        keys.append(part)
    return tuple(keys)


def _sentence(
    kind: str, message: str, value: object, where: tuple[str | int, ...], name: str
) -> str:
    if kind == "extra_forbidden":
        return f"unknown key {name!r}; {_near_key(where)}"
    if kind == "missing":
        return MISSING_TEXT.get(name, f"{name!r} is missing")
    if where == ("question", "kind"):
        return (
            f"a question of kind {value!r} is not served by the sweep planner; it serves 'minimum'"
        )
    if where == ("planner",):
        return f"there is no planner {value!r}; choose 'sweep'"
    if where == ("metric", "name"):
        return f"there is no metric {value!r}; choose 'held_out_reward'"
    text = message.removeprefix("Value error, ")
    return f"{name!r} is {value!r}: {text[:1].lower()}{text[1:]}"


def _near_key(where: tuple[str | int, ...]) -> str:
    fields = _fields_at(where[:-1])
    near = get_close_matches(str(where[-1]), fields, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys here: {', '.join(fields)}"


def _fields_at(where: tuple[str | int, ...]) -> list[str]:
    model: Any = GoalSpec
    if where[:1] == ("factors",) and len(where) > 1:
        return ["levels", "range", "scale", "step"]
    for key in where:
        annotation = cast("type[BaseModel]", model).model_fields[str(key)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(cast("type[BaseModel]", model).model_fields)
