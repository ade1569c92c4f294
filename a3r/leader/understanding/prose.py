"""Which goals need a reader, what is filed of one before it is read, and what a person is told who has no language model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.errors import GoalError
from a3r.core.types import ReviewMode
from a3r.leader.clients.writing import own_client
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.goal_paths import own_task
from a3r.leader.goal_text import (
    MISSING_TEXT,
    SKELETON,
    FrontMatter,
    mistakes_error,
    validated,
)
from a3r.leader.understanding.demands import name_of
from a3r.leader.understanding.session import split_goal

REQUIRED = ("question", "task", "model", "factors")
"""Keys without which nothing can be planned."""


SET_MODEL = "Set A3R_LLM=provider/model where the daemon runs ('a3r doctor' looks at it), then start the goal again."


@dataclass(frozen=True)
class Filed:
    """What a campaign begins with."""

    name: str
    spec: dict[str, Any]
    """Empty: a job reads the goal first."""
    review: ReviewMode
    planner: str


def needs_reader(text: str, path: Path) -> bool:
    """Whether the front matter lacks a required key and prose may hold it.

    Raises:
        GoalError: neither is there, or the front matter is no YAML.
    """
    return bool(lacking(text, path))


def lacking(text: str, path: Path) -> list[str]:
    """Required keys that the front matter does not have, where there is prose; empty when it has them all.

    Raises:
        GoalError: see ``needs_reader``.
    """
    if _has_all(text, path):
        return []
    given, _ = split_goal(text, path)
    return [key for key in REQUIRED if key not in given]


def filed(text: str, path: Path, *, with_model: bool) -> Filed:
    """What to file of a goal; ``path`` is where it lies.

    Raises:
        GoalError: mistakes in the front matter; or it needs a language model (``model_wanted``, a reader) and there is none.
    """
    missing = lacking(text, path)
    if not missing:
        spec = parse_goal(text, path)
        wanted = "" if with_model else model_wanted(spec, path.parent)
        if wanted:
            raise GoalError(wanted, hint=SET_MODEL, mistakes=[wanted])
        return Filed(spec.name, spec.model_dump(mode="json"), spec.review, spec.planner)
    if not with_model:
        raise without_model(missing, path)
    given, prose = split_goal(text, path)
    refuse_mistakes(given, path)
    name = given.get("name")
    review = given.get("review")
    return Filed(
        name=str(name) if name else name_of(prose),
        spec={},
        review=ReviewMode(review) if review else ReviewMode.STAGE,
        planner=str(given.get("planner") or "llm"),
    )


def model_wanted(spec: GoalSpec, folder: Path) -> str:
    """For what a goal in front matter needs a language model, in words; empty when it needs none. ``folder`` is the goal's."""
    if spec.planner == "llm":
        return "`planner: llm` has a language model plan each stage, and none is set"
    if own_task(spec) and own_client(spec, folder) is None:
        return (
            f"task {spec.task!r} is the goal's own and `code` holds no client.py, so a language model must write its client, "
            "and none is set"
        )
    return ""


def without_model(missing: list[str], path: Path) -> GoalError:
    """The goal is prose, and nobody can read it."""
    lines = [MISSING_TEXT.get(key, f"{key!r} is missing") for key in missing]
    listed = "\n".join(f"  - {line}" for line in lines)
    return GoalError(
        f"{path.name} says in prose what it asks, and there is no language model to read it. As front matter it lacks:\n{listed}",
        hint=f"Set A3R_LLM=provider/model, or write these keys above the prose, for example:\n{SKELETON}",
        mistakes=lines,
        missing=missing,
    )


def refuse_mistakes(given: dict[str, Any], path: Path) -> None:
    """Raise on what a person wrote wrongly: no reading could put that right.

    Raises:
        GoalError: unknown keys, values out of range.
    """
    filler: dict[str, Any] = {
        "name": "x",
        "question": {"kind": "best", "factor": "learning_rate"},
        "task": "calculator",
        "model": "builtin:tiny-calc",
        "factors": {"learning_rate": {"levels": [0.1, 0.2]}},
        "metric": {},
    }
    try:
        validated(FrontMatter({**filler, **given}, "", 1), path)
    except GoalError as error:
        raise mistakes_error(path, [str(m) for m in error.details["mistakes"]]) from error


def _has_all(text: str, path: Path) -> bool:
    """Front matter with every required key; a goal without prose is judged by ``parse_goal``."""
    try:
        given, prose = split_goal(text, path)
    except GoalError:
        parse_goal(text, path)
        return True
    return not prose or all(key in given for key in REQUIRED)
