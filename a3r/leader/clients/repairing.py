"""The job that mends a client which failed: evidence in, a changed client out, examined as the first one was.

Only the client's files can change; the evaluator is sealed, and what is under study must still be read. The outcome is a diff.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from a3r.blueprints.artifact import pack_tree, unpack_tree
from a3r.blueprints.model import Blueprint
from a3r.core.errors import BlueprintError, NotFound
from a3r.core.hashing import content_hash, tree_hash
from a3r.core.llm import ModelMessage
from a3r.leader.clients.examination import Examination, Examiner
from a3r.leader.clients.files import File, diff_of, listing, plain_path, read_files, write_files
from a3r.leader.clients.writing import MAX_TOKENS, skill_text
from a3r.leader.factors import ARGUMENTS
from a3r.leader.jobs import JobContext
from a3r.leader.llm.tools import quoted
from a3r.leader.static_check import top_functions, words_of
from a3r.store.store import Store

MAX_DRAFTS = 3
LOG_BYTES = 8000


class Repair(BaseModel):
    """What a language model hands in."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    explanation: str = Field(min_length=1, max_length=1000)
    """What was wrong, and what the change does about it."""
    files: tuple[File, ...] = ()
    """Changed and new files, whole."""
    removed: tuple[str, ...] = ()
    """Paths of files that go."""


@dataclass(frozen=True)
class Broken:
    """A client that failed, with what is known of it."""

    blueprint: Blueprint
    seed: int
    base: Path
    """Its files, unpacked."""
    evaluator: Path | None
    evidence: str
    failure: str

    @property
    def arguments(self) -> dict[str, Any]:
        """What it was given."""
        return dict(self.blueprint.clients[0].arguments)

    @property
    def studied(self) -> frozenset[str]:
        """Arguments that are factors of its blueprint."""
        names = (f.removeprefix(ARGUMENTS) for f in self.blueprint.factors)
        return frozenset({*self.blueprint.factors, *names} & set(self.arguments))


def repair_client(context: JobContext) -> dict[str, Any]:
    """Mend the client of ``payload["attempt"]``; the result names the new artifact, the diff and what it touches.

    Raises:
        BlueprintError: the last draft still has problems.
        ModelError: see ``Desk.ask``.
    """
    payload = context.job.payload
    with tempfile.TemporaryDirectory(prefix="a3r-repair-") as scratch:
        broken = _broken(context.store, payload, Path(scratch))
        answer, folder, found = _mended(context, broken, Path(scratch))
        old, new = read_files(broken.base), read_files(folder)
        return {
            "artifact_sha": context.store.put_artifact(pack_tree(folder)),
            "tree_hash": tree_hash(folder),
            "diff": diff_of(old, new),
            "explanation": answer.explanation,
            "functions": touched(old, new),
            "failure": broken.failure,
            "trial": found.trial,
        }


def touched(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """``client.py: reward`` for each top-level function that differs, sorted; other files by name."""
    out: list[str] = []
    for name in sorted({*old, *new}):
        before, after = old.get(name, ""), new.get(name, "")
        if before == after:
            continue
        if not name.endswith(".py"):
            out.append(name)
            continue
        was, now = top_functions(before), top_functions(after)
        changed = [f for f in sorted({*was, *now}) if was.get(f) != now.get(f)]
        out += [f"{name}: {f}" for f in changed] or [name]
    return out


def _broken(store: Store, payload: dict[str, Any], scratch: Path) -> Broken:
    attempt = store.attempt(str(payload["attempt"]))
    run = store.run(attempt.run_id)
    blueprint = store.blueprint(run.blueprint_id).blueprint
    base = scratch / "base"
    unpack_tree(store.artifact(str(payload["base_sha"])), base)
    evaluator: Path | None = None
    if blueprint.evaluator.artifact:
        evaluator = scratch / "evaluator"
        unpack_tree(store.artifact(blueprint.evaluator.artifact), evaluator)
    failure = attempt.failure.value if attempt.failure else attempt.state.value
    words = f"failure: {failure}\nreason: {attempt.reason}\nseed of the run: {run.seed}"
    return Broken(
        blueprint=blueprint,
        seed=run.seed,
        base=base,
        evaluator=evaluator,
        evidence=f"{words}\n\nend of the client's log:\n{_log(store, attempt.id)}",
        failure=failure,
    )


def _log(store: Store, attempt_id: str) -> str:
    try:
        return store.read_log(attempt_id, "client", -LOG_BYTES, LOG_BYTES).decode(
            "utf-8", "replace"
        )
    except NotFound:
        return "(there is none)"


def _mended(context: JobContext, broken: Broken, scratch: Path) -> tuple[Repair, Path, Examination]:
    """Ask until the examination finds nothing."""
    examiner = _examiner(context, broken)
    old = read_files(broken.base)
    messages = [
        ModelMessage(role="system", content=skill_text()),
        ModelMessage(role="user", content=_order(broken, old)),
    ]
    found = Examination([])
    for number in range(1, MAX_DRAFTS + 1):
        answer = context.desk.ask(
            f"draft-{number}", "repair", messages, Repair, max_tokens=MAX_TOKENS
        )
        folder = scratch / str(number)
        found = _examined(answer, broken, old, folder, examiner)
        if not found.problems:
            return answer, folder, found
        told = quoted("what the checks and the debug episode found", found.words())
        again = f"This repair is not fit for review. Hand in a better one, against the original files.\n{told}"
        messages += [
            ModelMessage(role="assistant", content=answer.model_dump_json()),
            ModelMessage(role="user", content=again),
        ]
    raise BlueprintError(
        f"The client is not mended after {MAX_DRAFTS} drafts:\n{found.words()}",
        hint="Mend it by hand: put the client into a folder and name it as `code` in the goal.",
    )


def _examined(
    answer: Repair, broken: Broken, old: dict[str, str], folder: Path, examiner: Examiner
) -> Examination:
    try:
        gone = {plain_path(name).as_posix() for name in answer.removed}
        kept = (File(path=n, content=t) for n, t in old.items() if n not in gone)
        write_files(folder, kept)
        write_files(folder, answer.files)
    except BlueprintError as error:
        return Examination([error.message])
    new = read_files(folder)
    if not diff_of(old, new):
        return Examination(["the repair changes nothing"])
    before = frozenset[str]().union(*(words_of(t) for n, t in old.items() if n.endswith(".py")))
    after = frozenset[str]().union(*(words_of(t) for n, t in new.items() if n.endswith(".py")))
    lost = sorted((broken.studied & before) - after)
    if lost:
        return Examination(
            [f"the argument {name!r} is under study and is no longer read" for name in lost]
        )
    return examiner.examine(folder, broken.evaluator)


def _examiner(context: JobContext, broken: Broken) -> Examiner:
    evaluator, client = broken.blueprint.evaluator, broken.blueprint.clients[0]
    root = context.workspace.root
    return Examiner(
        folder=root / "jobs" / content_hash(context.job.id)[:16],
        task=evaluator.task,
        items=evaluator.items,
        item_seed=evaluator.item_seed,
        arguments=broken.arguments,
        workspace=root,
        python=client.environment.python if client.environment.kind == "python" else "",
        # The seed that it failed with: some faults show with no other.
        seed=broken.seed,
    )


def _order(broken: Broken, files: dict[str, str]) -> str:
    """What is to be mended."""
    return "\n".join(
        [
            "A training run failed because of its client. Repair the client.",
            f"arguments that it is given: {broken.arguments}",
            f"arguments under study: {sorted(broken.studied) or 'none'}",
            quoted("evidence", broken.evidence),
            quoted("the client's files", listing(files)),
        ]
    )
