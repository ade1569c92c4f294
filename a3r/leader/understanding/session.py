"""The conversation in which a language model reads a goal: ask, check, say what is wrong, ask again, at most three times."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from a3r.core.errors import GoalError, ReplyInvalid
from a3r.core.llm import ModelMessage
from a3r.leader.factors import KNOWN_NAMES
from a3r.leader.goal_text import FENCE, prose_of, read_front_matter
from a3r.leader.llm.desk import Desk
from a3r.leader.llm.tools import quoted
from a3r.leader.tasks import TASKS
from a3r.leader.understanding.checks import understand
from a3r.leader.understanding.reading import Reading, Understanding

PURPOSE = "understand"
TRIES = 3
MAX_GOAL = 40_000
"""Characters of a goal that a model reads."""


def read_prose(desk: Desk, text: str, path: Path, *, model: str = "") -> Understanding:
    """Have the goal read; ``path`` is its file, ``model`` the name that is written down as the reader.

    Raises:
        GoalError: no prose, too much of it, or front matter that is no YAML.
        ReplyInvalid: three readings did not say what the goal says (the last one's faults are in the message).
        ModelError: see ``Desk.ask``.
    """
    given, prose = split_goal(text, path)
    messages = [
        ModelMessage(role="system", content=prompt()),
        ModelMessage(role="user", content=_asked(prose, given)),
    ]
    faults: list[str] = []
    for number in range(1, TRIES + 1):
        reading = desk.ask(f"reading-{number}", PURPOSE, messages, Reading)
        found, faults = understand(reading, prose, given, path)
        if found is not None:
            return found.model_copy(update={"model": model})
        listed = "\n".join(f"- {fault}" for fault in faults)
        messages += [
            ModelMessage(role="assistant", content=reading.model_dump_json()),
            ModelMessage(
                role="user", content=f"That is not what the goal says:\n{listed}\nRead it again."
            ),
        ]
    raise ReplyInvalid(
        f"the language model did not read the goal as it is written, in {TRIES} tries: {'; '.join(faults)}",
        hint="Write what it stumbled over as front matter (`a3r campaign check` shows the keys), or try another model.",
        faults=faults,
    )


def split_goal(text: str, path: Path) -> tuple[dict[str, Any], str]:
    """(front matter, prose); the front matter is empty when there is none.

    Raises:
        GoalError: no prose, too much of it, or front matter that is no YAML.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    first = next((line for line in lines if line.strip()), "")
    given = read_front_matter(text, path).data if first.rstrip() == FENCE else {}
    prose = prose_of(text) if given else text.strip()
    if not prose:
        raise GoalError(
            f"The goal {str(path)!r} has no prose, and its front matter does not say enough.",
            hint="`a3r campaign check` lists the keys that are missing.",
        )
    if len(prose) > MAX_GOAL:
        raise GoalError(
            f"The goal {str(path)!r} has {len(prose)} characters of prose; a model reads {MAX_GOAL} of it at most.",
            hint="Move long material into files and name them under `reference`.",
        )
    return given, prose


def prompt() -> str:
    """What a reader is told."""
    text = (files("a3r.leader.understanding") / "prompt.md").read_text(encoding="utf-8")
    return text.replace("<<names>>", ", ".join(KNOWN_NAMES)).replace("<<tasks>>", ", ".join(TASKS))


def _asked(prose: str, given: Mapping[str, Any]) -> str:
    parts = [quoted("the goal", prose)]
    if given:
        parts.append(
            f"These keys are written already and stand: {', '.join(map(str, given))}. Add what is missing."
        )
    parts.append("Read the goal.")
    return "\n\n".join(parts)
