"""``a3r campaign check`` and ``start`` on goals in prose: who reads them, and what of it is shown and kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from a3r.cli.edge import say, workspace_or_new
from a3r.cli.goal_prices import prices_of_goal, prices_of_prose, refuse_unpriced
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_check import GoalCheck, check_goal, check_spec
from a3r.leader.goal_parsing import goal_file, goal_text, read_goal
from a3r.leader.goal_paths import path_mistakes
from a3r.leader.goal_words import understood
from a3r.leader.understanding.prose import filed, model_wanted, needs_reader, refuse_mistakes
from a3r.leader.understanding.reading import Understanding
from a3r.leader.understanding.session import read_prose, split_goal
from a3r.leader.understanding.shelf import keep_reading, kept_reading
from a3r.leader.understanding.telling import front_matter, reading_lines

Json = dict[str, Any]
STAND_IN_MODEL = "builtin:tiny-calc"


def checked(goal: Path, *, again: bool) -> tuple[Json, list[str]]:
    """(the check as JSON, lines about how prose was read). Without a language model prose is a mistake like any other.

    Raises:
        A3RError: the goal can not be read from disk, or the model gave no usable reading.
    """
    file = goal_file(goal).absolute()
    text = goal_text(file)
    if not _is_prose(text, file) or not model_is_set():
        return _as_it_stands(goal, text, file), []
    found = _understood(text, file, again=again)
    spec = GoalSpec.model_validate(found.goal_spec)
    body = _priced(_check_of(spec, file), spec).model_dump(mode="json")
    body["reading"] = found.model_dump(mode="json", exclude={"goal_spec"})
    body["front_matter"] = front_matter(found)
    return body, [
        *reading_lines(found),
        "the same as front matter:",
        *body["front_matter"].splitlines(),
    ]


def refuse_unreadable(text: str, file: Path) -> bool:
    """Whether a job will read the goal first. Says where USD can not be bounded for a language model.

    Raises:
        GoalError: mistakes; the goal is prose and no language model is set; or it limits USD for a model without a price.
    """
    spec = filed(text, file, with_model=model_is_set()).spec
    if spec:
        found = prices_of_goal(GoalSpec.model_validate(spec), _config())
    else:
        found = prices_of_prose(text, file, _config())
    refuse_unpriced(found)
    for warning in found.warnings:
        say(f"warning: {warning}")
    return not spec


def model_is_set() -> bool:
    """Whether the settings name a language model."""
    from a3r.core.settings import resolve_settings

    return bool(resolve_settings(env=os.environ, file=_config()).llm.strip())


def _check_of(spec: GoalSpec, file: Path) -> GoalCheck:
    """The usual check. What the goal points at and is not there is looked for now, not when the goal was read."""
    missing = [m.text for m in path_mistakes(spec, file.parent)]
    if not missing:
        return check_spec(spec, file)
    # Cost and resolution do not depend on the weights; with a model that is there they can be said all the same.
    check = check_spec(spec.model_copy(update={"model": STAND_IN_MODEL}), file)
    return check.model_copy(
        update={"ok": False, "mistakes": missing, "understood": understood(spec)}
    )


def _priced(check: GoalCheck, spec: GoalSpec) -> GoalCheck:
    """The check with what is wrong about the language models' prices."""
    found = prices_of_goal(spec, _config())
    mistakes, warnings = [*check.mistakes, *found.mistakes], [*check.warnings, *found.warnings]
    ok = check.ok and not found.mistakes
    return check.model_copy(update={"ok": ok, "mistakes": mistakes, "warnings": warnings})


def _as_it_stands(goal: Path, text: str, file: Path) -> Json:
    from a3r.core.errors import GoalError

    try:
        filed(text, file, with_model=False)
    except GoalError as error:
        if error.details.get("missing"):
            mistakes = [str(m) for m in error.details["mistakes"]]
            empty = GoalCheck(
                ok=False,
                path=str(file),
                understood=[],
                mistakes=mistakes,
                warnings=[
                    "prose is read only where a language model is set (A3R_LLM=provider/model)"
                ],
                estimated_runs=None,
                estimated_episodes=None,
            )
            return empty.model_dump(mode="json")
    check = check_goal(goal)
    if check.ok and model_is_set():
        check = _priced(check, read_goal(file))
    elif check.ok and (wanted := model_wanted(read_goal(file), file.parent)):
        check = check.model_copy(update={"ok": False, "mistakes": [f"{wanted}: set A3R_LLM"]})
    return check.model_dump(mode="json")


def _is_prose(text: str, file: Path) -> bool:
    from a3r.core.errors import GoalError

    try:
        return needs_reader(text, file)
    except GoalError:
        return False


def _understood(text: str, file: Path, *, again: bool) -> Understanding:
    """What was shown before for this very text, unless asked to read it again; else a new reading, kept."""
    workspace = workspace_or_new()
    kept = None if again else kept_reading(workspace, text)
    if kept is not None:
        return kept
    given, _ = split_goal(text, file)
    refuse_mistakes(given, file)
    from a3r.cli.daemon.language_model import models_of
    from a3r.core.settings import resolve_settings
    from a3r.leader.llm.desk import Desk
    from a3r.leader.llm.memory_journal import MemoryJournal

    settings = resolve_settings(env=os.environ, file=workspace.config)
    model, fallbacks = models_of(settings, os.environ)
    journal = MemoryJournal()
    say(f"{settings.llm} reads the goal ...")
    desk = Desk(journal, model, "check", fallbacks=fallbacks)
    found = read_prose(desk, text, file, model=settings.llm)
    spent = journal.llm_spent("check")
    say(
        f"reading it took {sum(s.tokens for s in spent.values())} tokens, USD {sum(s.usd for s in spent.values()):.4f}"
    )
    keep_reading(workspace, text, found)
    return found


def _config() -> Path | None:
    from a3r.core.errors import WorkspaceError
    from a3r.core.workspace import find_workspace

    try:
        return find_workspace(Path.cwd(), os.environ).config
    except WorkspaceError:
        return None
