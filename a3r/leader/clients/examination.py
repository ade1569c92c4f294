"""Everything that is asked of a client before a person reviews it: static checks, held-out data apart, a debug episode.

The outcome is kept by the hash of what was examined: a job that is done again after a crash must say the same to the language
model as before, and a debug episode's log is never twice the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a3r.blueprints.tasks import scored_task
from a3r.core.hashing import content_hash, tree_hash
from a3r.leader.clients.checks import check_client, check_evaluator, leaks
from a3r.leader.clients.trial import Trial
from a3r.sandbox.scoring import walled_task

MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Examination:
    """What was found."""

    problems: list[str]
    """In words; empty = fit for review."""
    item_set_hash: str = ""
    trial: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of the debug episode; empty when it did not come to it."""

    def words(self) -> str:
        """For the one who has to mend it: the problems, then the end of the log."""
        lines = [f"- {p}" for p in self.problems[:MAX_PROBLEMS]]
        more = len(self.problems) - MAX_PROBLEMS
        lines += [f"- and {more} more"] if more > 0 else []
        log = str(self.trial.get("log", "")).strip()
        return "\n".join([*lines, *(["", "The client's output:", log] if log else [])])


@dataclass(frozen=True)
class Examiner:
    """Examines clients of one job."""

    folder: Path
    """Where outcomes are kept, and debug episodes take place: the job's own."""
    task: str
    """Of a client without a sealed evaluator."""
    items: int
    item_seed: int
    arguments: Mapping[str, Any]
    workspace: Path
    """Hidden from the client."""
    python: str = ""
    seed: int = 0

    def examine(self, client: Path, evaluator: Path | None) -> Examination:
        """Check the client (and the evaluator), then let it play; the same code gives the outcome that is on file."""
        kept = self.folder / f"examined-{self._key(client, evaluator)}.json"
        if kept.exists():
            return Examination(**json.loads(kept.read_text("utf-8")))
        found = self._examine(client, evaluator)
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(".part")
        draft.write_text(json.dumps(found.__dict__), "utf-8")
        draft.replace(kept)
        return found

    def _key(self, client: Path, evaluator: Path | None) -> str:
        sealed = tree_hash(evaluator) if evaluator else self.task
        parts = [tree_hash(client), sealed, self.items, self.item_seed, self.seed]
        return content_hash([*parts, dict(self.arguments)])[:32]

    def _examine(self, client: Path, evaluator: Path | None) -> Examination:
        problems, found = check_client(client), ""
        if evaluator is not None:
            more, found = check_evaluator(evaluator, self.items, self.item_seed, client)
            problems += more
        else:
            known = scored_task(self.task)
            items = known.items(self.items, self.item_seed)
            problems += leaks(client, {i.task_id: known.prompt(i) for i in items})
        if problems:
            return Examination(problems)
        known = nullcontext(scored_task(self.task)) if evaluator is None else walled_task(evaluator)
        with known as task:
            report = Trial(
                client=client,
                task=task,
                items=self.items,
                item_seed=self.item_seed,
                arguments=self.arguments,
                scratch=self.folder / "trial",
                hidden=(self.workspace,),
                python=self.python,
                seed=self.seed,
            ).run()
        return Examination([f"debug episode: {p}" for p in report.problems], found, report.told())
