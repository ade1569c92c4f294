"""An understanding for people: each key with the goal's own words, what was assumed, and the same as front matter."""

from __future__ import annotations

from typing import Any

from a3r.blueprints.yaml import dump_yaml
from a3r.leader.goal import GoalSpec
from a3r.leader.understanding.reading import Understanding
from a3r.report.escape import visible


def reading_lines(found: Understanding) -> list[str]:
    """One line a key; words of the goal and of the model without hidden characters."""
    by = found.model or "a language model"
    lines = [f"read from prose by {by}; a campaign started from this very text is frozen on it"]
    lines += [f"  {s.key}: the goal says {_shown(s.quote)!r}" for s in found.sources]
    lines += [f"  {a.key}: ASSUMED, because {_shown(a.because)}" for a in found.assumptions]
    lines += [f"  kept in words: {_shown(text)}" for text in found.in_words]
    return lines


def front_matter(found: Understanding) -> str:
    """The goal as front matter: put above the prose it asks for no reader any more."""
    spec = GoalSpec.model_validate(found.goal_spec)
    said: dict[str, Any] = spec.model_dump(mode="json", exclude_defaults=True)
    said["question"] = {k: v for k, v in said["question"].items() if v is not None}
    said["planner"] = spec.planner
    return f"---\n{dump_yaml(said).rstrip()}\n---"


def _shown(text: str) -> str:
    return " ".join(visible(text, keep="\n\t ").split())
