"""A sealed evaluator: a folder with ``evaluation.py``, whose code runs in a process of its own and is never the client's.

``items(count, seed) -> list[dict]`` (``item_id``, ``payload`` that the agent sees, ``answer`` that it never sees) and
``score(item, trace) -> float``. The folder's tree hash stands in the blueprint, so the approval covers every byte of it. The
object has the methods of ``a3r.blueprints.tasks.ScoredTask``: leader and worker treat both alike.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from a3r.blueprints import scoring_host
from a3r.core.errors import BlueprintError
from a3r.core.hashing import content_hash, tree_hash
from swarm.client.tasks import Task
from swarm.protocol.records import EpisodeTrace

ENTRY = "evaluation.py"
TIMEOUT_S = 60.0
"""For the whole list of items, and for one score."""
MAX_ANSWER_BYTES = 64 * 2**20
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "A3R_NONCE", "A3R_PROCESS")
"""Of the environment: enough to run, and the marks by which the process is known as ours. No keys, no tokens."""


class SealedTask:
    """The evaluator in a folder. Not thread-safe; ``close`` (or ``with``) ends its process."""

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        timeout_s: float = TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is started before something is asked.

        Args:
            folder: holds ``evaluation.py``.
            python: runs it.
            timeout_s: for one answer.
            environment: None = this process's own; cut down either way.
            command: instead of ``scoring_command(folder, python)``: the same behind walls.
            variables: to add to its environment.
        """
        self.folder = folder
        self.name = folder.name
        self._timeout_s = timeout_s
        self._environment = dict(os.environ if environment is None else environment)
        self._command = list(command) or scoring_command(folder, python)
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SealedTask:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()

    # -- what a task can do -----------------------------------------------------------------------------------

    def source_hash(self) -> str:
        """Tree hash of the folder."""
        return tree_hash(self.folder)

    def items(self, count: int, seed: int) -> list[Task]:
        """The held-out items in order; ``payload`` of a task holds the item's ``payload`` and ``answer``.

        Raises:
            BlueprintError: the code fails, does not end, or its list is not ``count`` items with ids of their own.
        """
        return read_items(self._ask({"do": "items", "count": count, "seed": seed}), count)

    def items_hash(self, items: Sequence[Task]) -> str:
        """sha256 (16 hex) of ids, payloads and answers in order."""
        return content_hash([[t.task_id, t.payload] for t in items])[:16]

    def item_set_hash(self, count: int, seed: int) -> str:
        """Hash of the list of that size and seed."""
        return self.items_hash(self.items(count, seed))

    def prompt(self, task: Task) -> dict[str, Any]:
        """The part of an item that the agent may see."""
        return dict(task.payload["payload"])

    def score(self, task: Task, trace: EpisodeTrace | Mapping[str, Any]) -> float:
        """The item's score from the server's trace of its episode.

        Raises:
            BlueprintError: the code fails, does not end, or answers with no finite number.
        """
        seen = told(trace) if isinstance(trace, EpisodeTrace) else dict(trace)
        item = {"item_id": task.task_id, **task.payload}
        value = self._ask({"do": "score", "item": item, "trace": seen})
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise _faulty(f"score() gave {value!r} for {task.task_id!r}, which is no finite number")
        return float(value)

    # -- the process ------------------------------------------------------------------------------------------

    def _ask(self, request: dict[str, Any]) -> Any:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._read_line(process)
        except (OSError, TimeoutError) as error:
            self.close()
            raise _faulty(str(error) or type(error).__name__) from error
        answer = cast("dict[str, Any]", json.loads(line))
        if "error" in answer:
            raise _faulty(str(answer["error"]))
        return answer["ok"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            kept = {k: v for k, v in self._environment.items() if k in KEPT_VARIABLES}
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**kept, **self._variables, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            )
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        """One answer, within the time limit."""
        assert process.stdout is not None
        found, ends, stream = (
            bytearray(),
            time.monotonic() + self._timeout_s,
            process.stdout.fileno(),
        )
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(0.0, ends - time.monotonic())):
                    raise TimeoutError(f"there was no answer within {self._timeout_s:g} s")
                piece = os.read(stream, 1 << 16)
                if not piece:
                    raise OSError(f"its process ended with {process.wait()}")
                found += piece
                if len(found) > MAX_ANSWER_BYTES:
                    raise OSError(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
        return bytes(found)


def scoring_command(folder: Path, python: str = sys.executable) -> list[str]:
    """What runs the evaluator of a folder."""
    return [python, "-s", "-P", "-B", scoring_host.__file__, str(folder.resolve())]


def told(trace: EpisodeTrace) -> dict[str, Any]:
    """What ``score`` is given of a trace: who said what in which order, no token ids."""
    return {
        "task_id": trace.task_id,
        "calls": [
            {
                "messages": call.messages,
                "reply": call.reply,
                "finish_reason": str(call.finish_reason),
                "agent": call.agent,
                "tag": call.tag,
            }
            for call in trace.calls
        ],
    }


def read_items(raw: Any, count: int) -> list[Task]:
    """Check what ``items`` gave.

    Raises:
        BlueprintError: see ``SealedTask.items``.
    """
    rows = cast("list[Any]", raw) if isinstance(raw, list) else []
    if len(rows) != count:
        raise _faulty(f"items({count}, seed) gave {len(rows)} items")
    found: dict[str, Task] = {}
    for row in rows:
        item: dict[str, Any] = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        name, payload = item.get("item_id"), item.get("payload")
        if not isinstance(name, str) or not name or not isinstance(payload, dict):
            raise _faulty(f"an item is no {{item_id, payload, answer}}: {json.dumps(row)[:200]}")
        if "answer" not in item:
            raise _faulty(f"the item {name!r} has no answer")
        if name in found:
            raise _faulty(f"the item {name!r} comes twice")
        found[name] = Task(name, {"payload": payload, "answer": item["answer"]})
    return list(found.values())


def _faulty(why: str) -> BlueprintError:
    return BlueprintError(
        f"The sealed evaluator does not do its work: {why}.",
        hint="evaluation.py defines items(count, seed) and score(item, trace); see the skill write-client.",
    )
