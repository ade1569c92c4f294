"""Writes the client of a task from its template. The same task gives the same bytes."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from a3r.core.errors import BlueprintError
from a3r.leader.static_check import check_source
from a3r.leader.tasks import TASKS
from swarm.tasks import calculator

ENTRY = "client.py"


def generate_client(task: str, folder: Path) -> Path:
    """Write the client of ``task`` into ``folder`` (made if absent; an older client there is replaced) and check it.

    Raises:
        BlueprintError: the generated code does not pass the static checks: the template is broken.
    """
    source = client_source(task)
    problems = check_source(source)
    if problems:
        raise BlueprintError(
            f"The client generated for {task!r} does not pass its checks: {'; '.join(problems)}.",
            hint="The template in a3r/leader/templates must be repaired.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ENTRY).write_text(source, encoding="utf-8")
    return folder


def client_source(task: str) -> str:
    """The client's code."""
    template = TASKS[task].template
    file = resources.files("a3r.leader") / "templates" / template / f"{ENTRY}.j2"
    # The output is Python source, not HTML: escaping would break it.
    options: dict[str, Any] = {"undefined": StrictUndefined, "autoescape": False}
    environment = Environment(keep_trailing_newline=True, **options)  # noqa: S701
    return environment.from_string(file.read_text(encoding="utf-8")).render(
        task=task,
        system=calculator.SYSTEM,
        error=calculator.ERROR,
        max_turns=calculator.MAX_TURNS,
        max_digits=calculator.MAX_DIGITS,
        tools=json.dumps(calculator.TOOLS, indent=4),
    )
