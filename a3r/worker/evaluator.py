"""The sealed evaluator: one round of held-out items, ``python -m a3r.worker.evaluator SPEC.json``.

The client's agent plays the items in a process of its own that sees prompts, never answers, and holds the eval token. What
it says of itself counts for nothing: each item is scored here, from the trace that the server captured. An item without a
complete episode, or one that was answered by another policy version than the round's, is missing: counted, never 0.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from a3r.blueprints.sealed import SealedTask
from a3r.blueprints.tasks import ScoredTask, scored_task
from a3r.core.errors import A3RError, BlueprintError
from a3r.core.hashing import tree_hash
from a3r.core.wire import EvalItem, EvalRound
from a3r.worker.failures import EVALUATOR_REFUSED
from a3r.worker.supervisor import write_json
from swarm.client import SwarmClient
from swarm.client.tasks import Task
from swarm.protocol.errors import NotFoundError, SwarmError
from swarm.protocol.messages import Status
from swarm.protocol.records import EpisodeTrace
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState, FinishReason

logger = logging.getLogger(__name__)

TRIES = 2
"""Times that the agent is asked to play what is missing."""
SERVING = (EngineState.ROLLING, EngineState.ROLLING_POST, EngineState.TRAINED)
READY_DEADLINE_S = 120.0


class EvaluatorSpec(BaseModel):
    """The file named in argv."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    url: str
    token_file: str
    """The eval token."""
    round: str
    """``initial``, ``final``, ``step-<k>``."""
    close_gate: bool
    """Training waits for this round."""
    servers: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    """Name -> ``url`` and ``token_file`` of each server of the attempt; what is scored is the first one's."""
    fencing_token: int
    task: str
    items: int
    item_seed: int
    item_set_hash: str
    source_hash: str
    evaluator_dir: str = ""
    """Folder of a sealed evaluator; empty: ``task`` is a registered one."""
    client_dir: str
    client_tree_hash: str
    """Of the client's code as it was reviewed; the training client could have written into its own folder."""
    entry: str
    arguments: dict[str, Any]
    seed: int
    work_dir: str
    """For the files that the agent's process reads and writes."""
    out_file: str
    python: str = sys.executable
    scorer: list[str] = Field(default_factory=list[str])
    """The whole command of a sealed evaluator's process (its walls); empty: without walls."""
    scorer_env: dict[str, str] = Field(default_factory=dict[str, str])
    """To add to its environment."""
    agent: list[str] = Field(default_factory=list[str])
    """The whole command of the agent's process (its own environment, its walls); empty: ``python entry agent.json``."""
    agent_env: dict[str, str] = Field(default_factory=dict[str, str])
    """To add to its environment."""


@dataclass
class Played:
    """What the agent's process said of the items, by item id. Only the episode's id is used."""

    episodes: dict[str, str]
    reasons: dict[str, str]


class Round:
    """One round from the first grant to the record."""

    def __init__(self, spec: EvaluatorSpec, client: SwarmClient) -> None:
        self.spec, self.client = spec, client
        self.work = Path(spec.work_dir)
        sealed = spec.evaluator_dir
        self.task: ScoredTask | SealedTask = (
            SealedTask(Path(sealed), command=spec.scorer, variables=spec.scorer_env)
            if sealed
            else scored_task(spec.task)
        )
        self.check_source()
        try:
            self.items: list[Task] = self.task.items(spec.items, spec.item_seed)
            self.check_seal()
        except BaseException:
            self.close()
            raise
        self.work.mkdir(parents=True, exist_ok=True)

    def check_seal(self) -> None:
        """Refuse items, scoring code or an agent that are not those of the blueprint."""
        agent = tree_hash(Path(self.spec.client_dir))
        if agent != self.spec.client_tree_hash:
            raise BlueprintError(
                "The client's code was changed after the review; its agent is not evaluated.",
                hint="A client must not write into its own folder; compare it with the blueprint's.",
            )
        refuse_other("items", self.task.items_hash(self.items), self.spec.item_set_hash)

    def check_source(self) -> None:
        """Refuse scoring code that is not the blueprint's, before any of it runs."""
        refuse_other("scoring code", self.task.source_hash(), self.spec.source_hash)

    def close(self) -> None:
        """End the sealed evaluator's process, if there is one."""
        if isinstance(self.task, SealedTask):
            self.task.close()

    def run(self) -> EvalRound:
        """Play and score; the record of the round.

        Raises:
            SwarmError: the server does not serve, or its policy moved during the round.
        """
        before = self.ready()
        assert before.policy_version is not None
        rows = self.rows(before.step, before.policy_version.n)
        after = self.client.status()
        if (after.step, after.fingerprint) != (before.step, before.fingerprint):
            raise SwarmError(
                f"The policy moved during the round (step {before.step} to {after.step}).",
                hint="A round without a gate must be short, or the server TRAINED.",
            )
        return EvalRound(
            fencing_token=self.spec.fencing_token,
            name=self.spec.round,
            step=before.step,
            policy_version=before.policy_version.n,
            planned=len(rows),
            item_set_hash=self.spec.item_set_hash,
            evaluator_hash=self.spec.source_hash,
            fingerprint=before.fingerprint or "",
            items=rows,
        )

    def rows(self, step: int, version: int) -> list[EvalItem]:
        """One row an item, in order; the agent is asked ``TRIES`` times for what is missing."""
        rows = {item.task_id: missing(item, "") for item in self.items}
        for number in range(1, TRIES + 1):
            left = [item for item in self.items if rows[item.task_id].reward is None]
            if not left:
                break
            if number > 1:
                logger.warning("%d of %d items are missing: once more", len(left), len(self.items))
            tries = self.count_try()
            played = self.play(left, step)
            for item in left:
                rows[item.task_id] = self.row(item, played, version, tries)
        return list(rows.values())

    def ready(self) -> Status:
        """Wait until the server serves."""
        ends = time.monotonic() + READY_DEADLINE_S
        while True:
            status = self.client.status()
            if status.state in SERVING:
                return status
            if time.monotonic() > ends:
                raise SwarmError(
                    f"The server is {status.state.value}, not serving.", hint="See its log."
                )
            time.sleep(0.2)

    def play(self, items: Sequence[Task], step: int) -> Played:
        """Let the agent play ``items`` in a process of its own; what it does not report is missing."""
        items_file, out_file = self.work / "items.json", self.work / "episodes.json"
        out_file.unlink(missing_ok=True)
        prompts = [{"item_id": i.task_id, "payload": self.task.prompt(i)} for i in items]
        write_json_list(items_file, prompts)
        told = self.work / "agent.json"
        agent_spec = {
            "url": self.spec.url,
            "token_file": self.spec.token_file,
            "mode": "eval",
            "seed": self.spec.seed,
            "arguments": self.spec.arguments,
            "items_file": str(items_file),
            "out_file": str(out_file),
            "step": step,
            "servers": self.spec.servers,
        }
        write_json(told, agent_spec)
        argv = self.spec.agent or [self.spec.python, self.spec.entry, str(told)]
        env = {**os.environ, **self.spec.agent_env}
        cwd, nothing = self.spec.client_dir, subprocess.DEVNULL
        done = subprocess.run(argv, cwd=cwd, env=env, stdin=nothing, check=False)
        if done.returncode != 0:
            logger.warning("the agent's process ended with %d", done.returncode)
        return read_played(out_file, done.returncode)

    def count_try(self) -> int:
        """Count a try before it begins (a restarted evaluator must know of it); returns how many there were with this one."""
        path = self.work.with_name(f"tries-{self.work.name}")  # out of the agent's reach
        number = int(path.read_text() or 0) + 1 if path.exists() else 1
        path.write_text(str(number))
        return number

    def row(self, item: Task, played: Played, version: int, tries: int) -> EvalItem:
        """Score one item from the server's trace; reward None says why not."""
        episode_id = played.episodes.get(item.task_id, "")
        if not episode_id:
            return missing(item, played.reasons.get(item.task_id, ""))
        try:
            trace = self.client.trace(episode_id)
        except NotFoundError:
            return missing(item, "no such episode")
        versions = {call.policy_version for call in trace.calls}
        why = refusal(trace, item, version, versions, tries)
        reward, failed = (None, why) if why else self.score(item, trace)
        return EvalItem(
            item_id=item.task_id,
            reward=reward,
            policy_version=versions.pop() if len(versions) == 1 else None,
            calls=len(trace.calls),
            truncated_calls=sum(c.finish_reason == FinishReason.LENGTH for c in trace.calls),
            reason=failed,
        )

    def score(self, item: Task, trace: EpisodeTrace) -> tuple[float | None, str]:
        """The item's score, or None and why there is none: an evaluator that fails must not look like an agent that does."""
        try:
            return self.task.score(item, trace), ""
        except BlueprintError as error:
            logger.error("the item %r has no score: %s", item.task_id, error.message)  # noqa: TRY400
            return None, f"score_failed: {error.message}"[:500]


def refuse_other(what: str, found: str, wanted: str) -> None:
    """Refuse what is not what the blueprint names by this hash."""
    if found != wanted:
        raise BlueprintError(
            f"The {what} here ({found[:12]}) are not those of the blueprint ({wanted[:12]}).",
            hint="Install the same version of a3r on the leader and on this host.",
        )


def refusal(trace: EpisodeTrace, item: Task, version: int, versions: set[int], tries: int) -> str:
    """Why a trace does not count as this item's episode in this round; empty when it does.

    ``tries``: how often the agent was asked. More finished episodes of an item than that means that the agent picked one.
    """
    if trace.kind is not EpisodeKind.EVAL or trace.task_id != item.task_id:
        return "not_this_item"
    if trace.state is not EpisodeState.FINISHED:
        return f"episode_{trace.state.value}"
    if not trace.calls:
        return "no_calls"
    if versions != {version}:
        return "mixed_versions"
    return "repeated_episode" if trace.repeat_index >= tries else ""


def missing(item: Task, reason: str) -> EvalItem:
    """The row of an item without a score."""
    return EvalItem(
        item_id=item.task_id,
        reward=None,
        policy_version=None,
        calls=0,
        truncated_calls=0,
        reason=reason or "no_episode",
    )


def read_played(path: Path, code: int) -> Played:
    """Read the agent's answer: a list of {item_id, episode_id, reason}, bare or under ``episodes``. Damaged = nothing said."""
    played = Played({}, {})
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        logger.warning("the agent's process (exit code %d) left no list of episodes", code)
        return played
    rows = cast("dict[str, Any]", raw).get("episodes", []) if isinstance(raw, dict) else raw
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        said = cast("dict[str, Any]", row)
        item_id = str(said.get("item_id"))
        if said.get("episode_id"):
            played.episodes[item_id] = str(said["episode_id"])
        played.reasons[item_id] = str(said.get("reason") or said.get("error") or "")[:500]
    return played


def write_json_list(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a JSON list atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(rows), encoding="utf-8")
    draft.replace(path)


def run(spec: EvaluatorSpec) -> None:
    """Do the round unless its record exists, then open the gate. Safe to repeat."""
    token = Path(spec.token_file).read_text(encoding="utf-8").strip()
    out = Path(spec.out_file)
    with SwarmClient(spec.url, token, f"evaluator-{spec.round}") as client:
        if not out.exists():
            with closing(Round(spec, client)) as played:
                write_json(out, played.run().model_dump(mode="json"))
        result = EvalRound.model_validate_json(out.read_bytes())
        completed = sum(item.reward is not None for item in result.items)
        logger.info("round %s: %d of %d items scored", result.name, completed, result.planned)
        if spec.close_gate and completed == result.planned:
            client.close_eval_round(result.step, result.planned, completed)


def main() -> None:
    """Read the spec named in argv and run the round; exit code 3 = refused for good, 1 = failed."""
    parser = argparse.ArgumentParser(description="Run one round of the sealed evaluator.")
    parser.add_argument("spec", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        run(EvaluatorSpec.model_validate_json(arguments.spec.read_bytes()))
    except BlueprintError as error:
        logger.error("refused: %s", error)  # noqa: TRY400 - an expected failure, told in words
        sys.exit(EVALUATOR_REFUSED)
    except (A3RError, SwarmError) as error:
        logger.error("the round failed: %s", error)  # noqa: TRY400
        sys.exit(1)


if __name__ == "__main__":
    main()
