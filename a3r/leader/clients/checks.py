"""What can be found wrong with a client and its sealed evaluator before anything of them plays an episode."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from a3r.blueprints import sealed
from a3r.blueprints.sealed import SealedTask
from a3r.core.errors import BlueprintError
from a3r.leader.generate import ENTRY
from a3r.leader.static_check import check_folder
from a3r.sandbox.scoring import walled_task
from swarm.client.tasks import Task

EVALUATION_FUNCTIONS = ("items", "score")
ANSWER_KEYS = frozenset({"answer", "answers", "solution", "target", "label", "expected", "gold"})
"""Names that a payload must not have: the agent sees it."""


def check_client(folder: Path) -> list[str]:
    """Problems of a client's folder; empty = fine. Its code is parsed, never run."""
    found = [f"client: {p}" for p in check_folder(folder, ENTRY)]
    stray = (folder / sealed.ENTRY).exists()
    return (
        [*found, "client: evaluation.py belongs to the evaluator, not to the client"]
        if stray
        else found
    )


def check_evaluator(
    folder: Path, count: int, seed: int, client: Path | None = None
) -> tuple[list[str], str]:
    """Problems of a sealed evaluator, and the hash of its held-out list (empty with problems). Runs its code, apart.

    Args:
        folder: holds ``evaluation.py``.
        count: held-out items of one evaluation.
        seed: of the list.
        client: the client's folder, which must hold none of the items.
    """
    problems = [f"evaluator: {p}" for p in _evaluation_code(folder)]
    if problems:
        return problems, ""
    try:
        with walled_task(folder) as first, walled_task(folder) as second:
            items = first.items(count, seed)
            problems += _unsteady(first, items, second.items(count, seed))
            problems += _telling(items)
            problems += _scores(first, items)
            found = first.items_hash(items)
    except BlueprintError as error:
        return [*problems, f"evaluator: {error.message}"], ""
    if client is not None:
        problems += leaks(client, {i.task_id: i.payload["payload"] for i in items})
    return problems, "" if problems else found


def _evaluation_code(folder: Path) -> list[str]:
    return [
        p.replace("a client does not need", "an evaluator does not need")
        for p in check_folder(folder, sealed.ENTRY, EVALUATION_FUNCTIONS)
    ]


def _unsteady(task: SealedTask, items: Sequence[Task], again: Sequence[Task]) -> Iterator[str]:
    if task.items_hash(items) != task.items_hash(again):
        yield "evaluator: items(count, seed) gives other items when it is asked again"


def _telling(items: Sequence[Task]) -> Iterator[str]:
    for item in items:
        named = ANSWER_KEYS & set(item.payload["payload"])
        if named:
            yield f"evaluator: the payload of {item.task_id!r} has {sorted(named)}, which the agent would see"
            return


def _scores(task: SealedTask, items: Sequence[Task]) -> Iterator[str]:
    """An answer that says nothing must have a score too, and not the best one for every item."""
    silent = [task.score(item, spoken(item, "")) for item in items[:8]]
    if silent and min(silent) >= 1.0:
        yield "evaluator: an empty answer scores 1"


def spoken(item: Task, text: str) -> dict[str, Any]:
    """The trace of an episode in which the agent said only this."""
    reply = {"role": "assistant", "content": text}
    call: dict[str, Any] = {
        "messages": [],
        "reply": reply,
        "finish_reason": "stop",
        "agent": "",
        "tag": "",
    }
    return {"task_id": item.task_id, "calls": [call]}


def leaks(client: Path, items: Mapping[str, dict[str, Any]]) -> list[str]:
    """Held-out items (id -> what the agent sees) that lie in the client's data: by id, or as a record that holds all of one."""
    held_out = {_key(payload): name for name, payload in items.items() if payload}
    names, keys = set(items), {frozenset(payload) for payload in items.values()}
    for file in sorted(client.rglob("*")):
        if file.suffix.lower() not in (".json", ".jsonl", ".ndjson") or not file.is_file():
            continue
        for record in _records(file):
            found = _held_out(record, held_out, names, keys)
            if found:
                where = file.relative_to(client).as_posix()
                return [
                    f"client: {where} holds the held-out item {found!r}: train and held-out data must differ"
                ]
    return []


def _held_out(
    record: dict[str, Any],
    held_out: dict[str, str],
    names: set[str],
    keys: set[frozenset[str]],
) -> str:
    for key in ("item_id", "task_id", "id"):
        if record.get(key) in names:
            return str(record[key])
    for wanted in keys:
        if wanted and wanted <= set(record):
            found = held_out.get(_key({k: record[k] for k in wanted}))
            if found:
                return found
    return ""


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _records(file: Path) -> Iterator[dict[str, Any]]:
    """Every object in a JSON or JSON lines file; nothing in a file that is none."""
    text = file.read_bytes().decode("utf-8", "replace")
    try:
        yield from _objects(json.loads(text))
        return
    except (ValueError, RecursionError):
        pass
    for line in text.splitlines():
        try:
            yield from _objects(json.loads(line))
        except (ValueError, RecursionError):
            continue


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        yield held
        for part in held.values():
            yield from _objects(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _objects(part)
