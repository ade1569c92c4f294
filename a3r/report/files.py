"""Records as files: JSON documents, one JSON object a line, and a compact CSV for the evaluation items.

Writing is deterministic and reading is its exact inverse, so ``verify`` can ask for equal bytes. Item ids stand once in
``items.json``; ``items.csv`` names them by position, which keeps a campaign of 32 runs below a megabyte.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from a3r.core.errors import VerificationFailed
from a3r.report.records import (
    AmendmentRecord,
    BlueprintRecord,
    CallRecord,
    CampaignRecord,
    DecisionRecord,
    DeviationRecord,
    EvalRecord,
    EventRecord,
    ItemRecord,
    Record,
    Records,
    ReviewRecord,
    RevisionRecord,
    RunRecord,
    StageRecord,
    StepRecord,
)

FOLDER = "records"
COLUMNS = ("round", "item", "reward", "version", "calls", "truncated", "reason")
SAME = "="
"""In the version column: the round's own."""

_LISTS: dict[str, tuple[str, type[Record]]] = {
    "stages": ("stages.json", StageRecord),
    "blueprints": ("blueprints.json", BlueprintRecord),
    "runs": ("runs.json", RunRecord),
    "reviews": ("reviews.json", ReviewRecord),
    "decisions": ("decisions.json", DecisionRecord),
    "deviations": ("deviations.json", DeviationRecord),
    "amendments": ("amendments.json", AmendmentRecord),
    "revisions": ("revisions.json", RevisionRecord),
    "calls": ("llm_calls.json", CallRecord),
}
_LINES: dict[str, tuple[str, type[Record]]] = {
    "steps": ("steps.jsonl", StepRecord),
    "events": ("events.jsonl", EventRecord),
}
"""The first line names the columns, each other line is one row as a list."""
_T = TypeVar("_T", bound=BaseModel)
_R = TypeVar("_R", bound=Record)


def encode(records: Records) -> dict[str, bytes]:
    """File name (relative to the report's folder) -> bytes."""
    out = {"campaign.json": json_bytes(_dump(records.campaign))}
    for field, (name, _) in _LISTS.items():
        out[name] = json_bytes([_dump(row) for row in getattr(records, field)])
    for field, (name, kind) in _LINES.items():
        out[name] = _lines(getattr(records, field), kind)
    ids = list(dict.fromkeys(i.item_id for e in records.evals for i in e.items))
    out["evals.json"] = json_bytes([_dump(e, exclude={"items"}) for e in records.evals])
    out["items.json"] = json_bytes(ids)
    out["items.csv"] = _items_csv(records.evals, ids)
    return {f"{FOLDER}/{name}": data for name, data in out.items()}


def decode(read: Callable[[str], bytes]) -> Records:
    """Rebuild records from ``read(name)``.

    Raises:
        VerificationFailed: a file does not parse; the message names file and line.
    """
    fields: dict[str, Any] = {}
    for field, (name, kind) in _LISTS.items():
        rows = _json(read, name)
        if not isinstance(rows, list):
            raise _broken(name, "it is not a list")
        fields[field] = tuple(_model(kind, row, name) for row in _as_list(rows))
    for field, (name, kind) in _LINES.items():
        fields[field] = tuple(_parsed_lines(read(f"{FOLDER}/{name}"), kind, name))
    fields["campaign"] = _model(CampaignRecord, _json(read, "campaign.json"), "campaign.json")
    fields["evals"] = _evals(read)
    return Records(**fields)


def read_records(folder: Path) -> Records:
    """Records of a report's folder."""
    return decode(lambda name: read_file(folder, name))


LATER = frozenset({"amendments.json", "revisions.json", "llm_calls.json"})
"""Lists that reports of format 1 did not have."""


def read_older_records(folder: Path) -> Records:
    """Records of a report of this or an earlier format, to render them anew; lists that it did not have are empty."""

    def read(name: str) -> bytes:
        absent = Path(name).name in LATER and not (folder / name).exists()
        return b"[]" if absent else read_file(folder, name)

    return decode(read)


def read_file(folder: Path, name: str) -> bytes:
    """Bytes of one file of the folder; VerificationFailed when it can not be read, or is a link, a device, a pipe."""
    path = folder / name
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise VerificationFailed(
            f"{name} is no plain file", hint="A report's folder holds plain files only."
        )
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{name} can not be read: {error.strerror}"
        raise VerificationFailed(msg, hint="Is this a whole report folder?") from error


def json_bytes(value: Any) -> bytes:
    """Readable JSON: indent 1, keys in order of the models, UTF-8, one newline at the end."""
    return (json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def _dump(row: BaseModel, exclude: set[str] | None = None) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude=exclude)


def _lines(rows: Sequence[Record], kind: type[Record]) -> bytes:
    dumps = [_dump(row) for row in rows]
    columns = [
        name
        for name in kind.model_fields
        if name not in kind.sparse or any(row[name] not in (None, {}) for row in dumps)
    ]
    lists = [columns, *([row[name] for name in columns] for row in dumps)]
    text = "".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        for row in lists
    )
    return text.encode()


def _items_csv(evals: Sequence[EvalRecord], ids: Sequence[str]) -> bytes:
    position = {item: index for index, item in enumerate(ids)}
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for index, found in enumerate(evals):
        for item in found.items:
            writer.writerow(
                (
                    index,
                    position[item.item_id],
                    _number(item.reward),
                    SAME
                    if item.policy_version == found.policy_version
                    else _number(item.policy_version),
                    item.calls,
                    item.truncated_calls,
                    item.reason,
                )
            )
    return buffer.getvalue().encode()


def _number(value: float | None) -> str:
    return "" if value is None else repr(value).removesuffix(".0")


def _evals(read: Callable[[str], bytes]) -> tuple[EvalRecord, ...]:
    headers, ids = _json(read, "evals.json"), _json(read, "items.json")
    items: list[list[ItemRecord]] = [[] for _ in headers]
    text = _text(read(f"{FOLDER}/items.csv"), "items.csv")
    rows = csv.reader(io.StringIO(text, newline=""))
    if tuple(next(rows, ())) != COLUMNS:
        raise _broken("items.csv", f"line 1 is not {','.join(COLUMNS)!r}")
    for row in _csv_rows(rows):
        try:
            index, item, reward, version, calls, truncated, reason = row
            items[int(index)].append(
                ItemRecord(
                    item_id=ids[int(item)],
                    reward=float(reward) if reward else None,
                    policy_version=headers[int(index)]["policy_version"]
                    if version == SAME
                    else (int(version) if version else None),
                    calls=int(calls),
                    truncated_calls=int(truncated),
                    reason=reason,
                )
            )
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise _broken("items.csv", f"line {rows.line_num}: {error}") from error
    return tuple(
        _model(EvalRecord, {**header, "items": found}, "evals.json")
        for header, found in zip(headers, items, strict=True)
    )


def _csv_rows(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise _broken("items.csv", str(error)) from error


def _json(read: Callable[[str], bytes], name: str) -> Any:
    try:
        return json.loads(_text(read(f"{FOLDER}/{name}"), name), parse_constant=_refuse_constant)
    except ValueError as error:
        raise _broken(name, str(error)) from error


def _parsed_lines(data: bytes, kind: type[_R], name: str) -> list[_R]:
    out: list[_R] = []
    columns: list[str] = []
    for number, line in enumerate(_text(data, name).split("\n")[:-1], start=1):
        try:
            row: Any = json.loads(line, parse_constant=_refuse_constant)
            if number == 1:
                columns = [c for c in kind.model_fields if c not in kind.sparse or c in row]
                if row != columns:
                    raise _broken(name, f"line 1 does not name the columns {columns}")
            if number > 1:
                out.append(_model(kind, dict(zip(columns, row, strict=True)), name))
        except (ValueError, TypeError) as error:
            raise _broken(name, f"line {number}: {error}") from error
    return out


def _model(kind: type[_T], value: Any, name: str) -> _T:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _broken(name, f"{where}: {first['msg']}") from error


def _as_list(rows: Any) -> list[Any]:
    return list(rows)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _broken(name, "it is not UTF-8") from error


def _refuse_constant(text: str) -> float:
    msg = f"{text} is not a number that a record may hold"
    raise ValueError(msg)


def _broken(name: str, why: str) -> VerificationFailed:
    return VerificationFailed(
        f"{FOLDER}/{name} does not parse: {why}", hint="The file was changed after it was written."
    )
