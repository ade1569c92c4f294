"""Reads a goal's front matter (YAML 1.2) and turns every mistake into a sentence with its line.

Knows the shape of a goal, not what its words mean together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from a3r.blueprints.yaml import YamlProblem, line_of, load_yaml
from a3r.core.errors import GoalError
from a3r.leader.goal import GoalSpec

FENCE = "---"
LARGEST = 2**63
"""Whole numbers from here on fit neither a database's column nor, far above it, a float."""
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
    text: str
    """What ``data`` was read from."""
    first_line: int
    """Line of the file (from 1) at which ``text`` begins."""

    def line_of(self, where: tuple[str | int, ...]) -> int | None:
        """Line (from 1) of the deepest key of ``where`` that the file has; None when it has none of them."""
        if not where or where[0] not in self.data:
            return None
        line = line_of(self.text, where)
        return None if line is None else line + self.first_line - 1

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
    front = "\n".join(lines[start + 1 : end]) + "\n"
    return FrontMatter(_parse(front, start + 2, path), front, start + 2)


def prose_of(text: str) -> str:
    """What stands below the front matter, stripped."""
    lines = text.removeprefix("\ufeff").splitlines()
    fences = [i for i, line in enumerate(lines) if line.rstrip() == FENCE]
    return "\n".join(lines[fences[1] + 1 :]).strip() if len(fences) > 1 else text.strip()


def _parse(text: str, first_line: int, path: Path) -> dict[str, Any]:
    try:
        data = load_yaml(text)
    except YamlProblem as error:
        line = "" if error.line is None else f" at line {error.line + first_line - 1}"
        raise GoalError(
            f"The front matter of {str(path)!r} is not YAML{line}: {error.message.splitlines()[0]}.",
            hint="Check indentation, brackets and quotes there.",
        ) from error
    if not data:
        raise GoalError(
            f"The front matter of {str(path)!r} holds no keys.",
            hint=f"It needs, for example:\n{SKELETON}",
        )
    largest = max(_whole_numbers(data), key=abs, default=0)
    if abs(largest) >= LARGEST:
        raise GoalError(
            f"The front matter of {str(path)!r} holds a whole number of {largest.bit_length()} bits.",
            hint=f"Numbers end below {LARGEST}.",
        )
    return data


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        for part in cast("dict[str, Any]", value).values():
            yield from _whole_numbers(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _whole_numbers(part)


def validated(front: FrontMatter, path: Path) -> GoalSpec:
    """The goal of a front matter, by shape.

    Raises:
        GoalError: unknown keys (with the nearest known one), missing keys, wrong types, numbers out of range.
    """
    try:
        return GoalSpec.model_validate(front.data)
    except ValidationError as error:
        mistakes = [front.placed(m) for m in _mistakes(error, front.data)]
        raise mistakes_error(path, mistakes) from error


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
            f"there is no question of kind {value!r}; choose 'minimum' (the smallest level that still trains), 'best' (the best "
            "level), 'comparison' (levels against a baseline) or 'interaction' (does `across` change what `factor` does)"
        )
    if where == ("planner",):
        return f"there is no planner {value!r}; choose 'sweep' (no language model) or 'llm'"
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
        return ["levels", "range", "scale", "step", "path"]
    for key in where:
        annotation = cast("type[BaseModel]", model).model_fields[str(key)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return _fields_inside(annotation)
        model = annotation
    return list(cast("type[BaseModel]", model).model_fields)


def _fields_inside(annotation: Any) -> list[str]:
    """Of a list of sections (``stop_rules``): the section's keys."""
    inner = next((a for a in get_args(annotation) if isinstance(a, type)), None)
    if inner is None or not issubclass(inner, BaseModel):
        return []
    return list(inner.model_fields)
