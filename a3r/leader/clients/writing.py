"""The job that makes a client which no template has: taken from the user's folder, or written by a language model.

Either way it is examined before anyone reviews it, and what the review sees is what runs. A language model gets the same text
that coding assistants get (``skills/write-client``), and its findings back until they are none, a bounded number of times.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from a3r.blueprints import sealed
from a3r.blueprints.artifact import pack_tree
from a3r.core.errors import BlueprintError
from a3r.core.hashing import content_hash, tree_hash
from a3r.core.llm import ModelMessage
from a3r.leader.clients.examination import Examination, Examiner
from a3r.leader.clients.files import File, write_files
from a3r.leader.clients.references import pages_of
from a3r.leader.clients.shelf import Shelf
from a3r.leader.experiment import ITEM_SEED, client_arguments
from a3r.leader.generate import ENTRY
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_paths import resolved
from a3r.leader.jobs import JobContext
from a3r.leader.llm.tools import quoted

MAX_DRAFTS = 4
MAX_TOKENS = 24_000
EVALUATOR = "evaluator"
"""Subfolder of the user's own client that holds its sealed evaluator; it is never part of the client."""


class WrittenClient(BaseModel):
    """What a language model hands in."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    client: tuple[File, ...] = Field(min_length=1)
    """client.py, and its training data where it has some."""
    evaluator: tuple[File, ...] = Field(min_length=1)
    """evaluation.py, and the held-out data."""
    protocol: str = Field(min_length=1, max_length=800)
    """How the held-out metric is measured, in one sentence."""


@dataclass(frozen=True)
class Draft:
    """A client and, unless its task is a shipped one, its evaluator: two folders side by side."""

    client: Path
    evaluator: Path | None
    protocol: str = ""


def skill_text() -> str:
    """The text of ``skills/write-client/SKILL.md``, as it ships with the package."""
    file = resources.files("a3r.leader.clients") / "write-client.md"
    return file.read_text(encoding="utf-8")


def own_client(goal: GoalSpec, goal_dir: Path) -> Path | None:
    """The folder of the goal's ``code`` when that is a client itself (holds ``client.py``), else None."""
    folder = resolved(goal.code, goal_dir) if goal.code else None
    return folder if folder is not None and (folder / ENTRY).is_file() else None


def write_client(context: JobContext) -> dict[str, Any]:
    """Make the client of ``payload["task"]``; the result names both artifacts by hash.

    Raises:
        BlueprintError: the user's client has problems, or the last draft still has some.
        ModelError: see ``Desk.ask``.
    """
    goal = GoalSpec.model_validate(context.campaign.goal_spec)
    task = str(context.job.payload["task"])
    own = own_client(goal, context.goal_dir)
    with tempfile.TemporaryDirectory(prefix="a3r-client-") as scratch:
        examiner = examiner_of(context, goal, task)
        if own is not None:
            draft = _copied(own, Path(scratch))
            found, drafts = examiner.examine(draft.client, draft.evaluator), 0
            if found.problems:
                raise BlueprintError(
                    f"The client in {goal.code!r} is not fit for review:\n{found.words()}",
                    hint="Mend it, then start the goal again.",
                )
        else:
            draft, found, drafts = _written(context, goal, examiner, Path(scratch))
        if goal.write_to and own is None:
            name = re.sub(r"[^\w-]+", "-", task).strip("-") or "client"
            _put(draft, resolved(goal.write_to, context.goal_dir) / f"{context.campaign.id}-{name}")
        return _result(context, draft, found, drafts, "code" if own else "written")


def examiner_of(context: JobContext, goal: GoalSpec, task: str, seed: int = 0) -> Examiner:
    """The examiner of a job; its folder is the job's own, in the workspace."""
    root = context.workspace.root
    return Examiner(
        folder=root / "jobs" / content_hash(context.job.id)[:16],
        task=task,
        items=goal.metric.items,
        item_seed=ITEM_SEED,
        arguments=client_arguments(goal, {}),
        workspace=root,
        python=goal.python,
        seed=seed,
    )


def _copied(folder: Path, scratch: Path) -> Draft:
    """The user's folder, its evaluator taken apart."""
    client, evaluator = scratch / "client", scratch / EVALUATOR
    left_out = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(folder, client, ignore=left_out, symlinks=True)
    if (client / EVALUATOR / sealed.ENTRY).is_file():
        (client / EVALUATOR).rename(evaluator)
        return Draft(client, evaluator, "scored by the evaluator in the goal's own code")
    return Draft(client, None)


def _written(
    context: JobContext, goal: GoalSpec, examiner: Examiner, scratch: Path
) -> tuple[Draft, Examination, int]:
    """Ask for drafts until one has no problems."""
    places = [resolved(p, context.goal_dir) for p in (goal.code, *goal.reference) if _is_path(p)]
    pages = pages_of(context, goal)
    shelf = Shelf((*(p for p in places if p.exists()), *pages.values()))
    messages = [
        ModelMessage(role="system", content=skill_text()),
        ModelMessage(role="user", content=_order(context, goal, shelf, pages)),
    ]
    found = Examination([])
    for number in range(1, MAX_DRAFTS + 1):
        answer = context.desk.ask(
            f"draft-{number}",
            "write_client",
            messages,
            WrittenClient,
            tools=shelf if shelf.places else None,
            max_tokens=MAX_TOKENS,
        )
        draft, found = _examined(answer, examiner, scratch / str(number))
        if not found.problems:
            return draft, found, number
        messages += [
            ModelMessage(role="assistant", content=answer.model_dump_json()),
            ModelMessage(role="user", content=_findings(found)),
        ]
    raise BlueprintError(
        f"The client of {examiner.task!r} is not fit for review after {MAX_DRAFTS} drafts:\n{found.words()}",
        hint="Describe the environment and its reward in the goal more closely, or give a client in `code`.",
    )


def _is_path(name: str) -> bool:
    return bool(name) and "://" not in name


def _examined(
    answer: WrittenClient, examiner: Examiner, scratch: Path
) -> tuple[Draft, Examination]:
    draft = Draft(scratch / "client", scratch / EVALUATOR, answer.protocol)
    assert draft.evaluator is not None
    try:
        write_files(draft.client, answer.client)
        write_files(draft.evaluator, answer.evaluator)
    except BlueprintError as error:
        return draft, Examination([error.message])
    return draft, examiner.examine(draft.client, draft.evaluator)


def _findings(found: Examination) -> str:
    told = quoted("what the checks and the debug episode found", found.words())
    return f"This is not fit for review yet. Hand in every file again, with these mended.\n{told}"


def _order(context: JobContext, goal: GoalSpec, shelf: Shelf, pages: dict[str, Path]) -> str:
    """What is to be written."""
    given = client_arguments(goal, {})
    fields = {
        "task": goal.task,
        "items of one evaluation": goal.metric.items,
        "item seed": ITEM_SEED,
        "arguments that the client is given": given,
        "factors under study": {n: list(f.levels) for n, f in goal.factors.items()},
        "constraints": list(goal.constraints),
    }
    lines = [f"{name}: {value}" for name, value in fields.items()]
    if shelf.places:
        lines.append("The user's own code and references can be read with the tools.")
    lines += [f"{address} is the file {path.name}" for address, path in pages.items()]
    goal_text = quoted("the goal", context.campaign.goal_text)
    return "\n".join(
        ["Write the client and its sealed evaluator for this goal.", *lines, goal_text]
    )


def _put(draft: Draft, folder: Path) -> None:
    """A copy for the user, in a folder of the campaign's own below the one that the goal allows. Safe to repeat."""
    for name, source in (("client", draft.client), (EVALUATOR, draft.evaluator)):
        if source is not None:
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(source, folder / name)


def _result(
    context: JobContext, draft: Draft, found: Examination, drafts: int, template: str
) -> dict[str, Any]:
    store, evaluator = context.store, draft.evaluator
    return {
        "template": template,
        "drafts": drafts,
        "client_sha": store.put_artifact(pack_tree(draft.client)),
        "client_tree": tree_hash(draft.client),
        "evaluator_sha": store.put_artifact(pack_tree(evaluator)) if evaluator else "",
        "evaluator_tree": tree_hash(evaluator) if evaluator else "",
        "item_set_hash": found.item_set_hash,
        "protocol": draft.protocol,
        "trial": found.trial,
    }
