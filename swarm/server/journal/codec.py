"""How records lie in the journal's columns: msgpack for what is large, JSON text for what people may want to read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from swarm.protocol.records import CallRecord
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason, TokenFate
from swarm.server.call_records import call_record
from swarm.server.journal.records import (
    CallVerdict,
    CommittedBatch,
    EpisodeDetails,
    EpisodeRecord,
)


class _CallRow(msgspec.Struct, array_like=True):
    """A CallRecord as an array; new fields go to the end, with a default."""

    index: int
    policy_version: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    reply: dict[str, Any]
    finish_reason: str
    prompt_ids: list[int]
    sampled_ids: list[int]
    logprobs: list[float]
    temperature: float
    max_tokens: int
    requested: dict[str, Any]
    fate: str | None
    fate_reason: str
    agent: str = ""
    parent: int | None = None
    token_versions: list[int] = []
    advantages: list[float] = []
    token_mask: list[bool] = []
    tag: str = ""
    excluded: bool = False
    dialect: str = "chat"
    applied: dict[str, Any] = {}
    kept: list[list[int]] = []
    unknown: list[str] = []
    raw_request: dict[str, Any] = {}
    choice: int = 0
    replayable: bool = True
    guarded: int = 0
    guard: list[str] = []


_FIELDS = _CallRow.__struct_fields__
_encoder = msgspec.msgpack.Encoder()
_calls_decoder = msgspec.msgpack.Decoder(list[_CallRow])
_batch_decoder = msgspec.msgpack.Decoder(CommittedBatch)
_metrics_decoder = msgspec.msgpack.Decoder(dict[str, float])
_details_decoder = msgspec.msgpack.Decoder(EpisodeDetails)
_verdicts_decoder = msgspec.msgpack.Decoder(list[CallVerdict])
_data_decoder = msgspec.msgpack.Decoder(dict[str, Any])

EPISODE_COLUMNS = (
    "episode_id, kind, client_id, task_set, task_id, group_id, repeat_index, step, policy_version, granted_at, "
    "idle_deadline_s, state, reward, metrics, reason, ended_at, consumed_step, dropped, call_count, details"
)


def pack(value: object) -> bytes:
    """Return ``value`` (builtins or structs) as msgpack."""
    return _encoder.encode(value)


def pack_calls(calls: Sequence[CallRecord]) -> bytes:
    """Return the calls of one episode as one blob."""
    return _encoder.encode(
        [
            (
                c.index,
                c.policy_version,
                c.messages,
                c.tools,
                c.reply,
                c.finish_reason,
                c.prompt_ids,
                c.sampled_ids,
                c.logprobs,
                c.temperature,
                c.max_tokens,
                c.requested,
                c.fate,
                c.fate_reason,
                c.agent,
                c.parent,
                c.token_versions,
                c.advantages,
                c.token_mask,
                c.tag,
                c.excluded,
                c.dialect,
                c.applied,
                c.kept,
                c.unknown,
                c.raw_request,
                c.choice,
                c.replayable,
                c.guarded,
                c.guard,
            )
            for c in calls
        ]
    )


def unpack_calls(blob: bytes | None) -> list[CallRecord]:
    """Return the calls of a blob; none for None (pruned)."""
    if blob is None:
        return []
    return [_call(row) for row in _calls_decoder.decode(blob)]


def _call(row: _CallRow) -> CallRecord:
    values: dict[str, Any] = {name: getattr(row, name) for name in _FIELDS}
    values["fate"] = None if row.fate is None else TokenFate(row.fate)
    values["fate_reason"] = FateReason(row.fate_reason)
    return call_record(values)


def pack_details(details: EpisodeDetails) -> bytes | None:
    """Return the details as msgpack; None when all are at their defaults."""
    return None if details == EpisodeDetails() else _encoder.encode(details)


def unpack_batch(blob: bytes) -> CommittedBatch:
    """Return a committed batch."""
    return _batch_decoder.decode(blob)


def unpack_verdicts(blob: bytes) -> list[CallVerdict]:
    """Return the verdict of each call of one episode."""
    return _verdicts_decoder.decode(blob)


def unpack_data(blob: bytes) -> dict[str, Any]:
    """Return the data of an event or a cursor."""
    return _data_decoder.decode(blob)


def episode_values(episode: EpisodeRecord) -> tuple[object, ...]:
    """Return the values of ``EPISODE_COLUMNS``, in order."""
    return (
        episode.episode_id,
        str(episode.kind),
        episode.client_id,
        episode.task_set,
        episode.task_id,
        episode.group_id,
        episode.repeat_index,
        episode.step,
        episode.policy_version,
        episode.granted_at,
        episode.idle_deadline_s,
        str(episode.state),
        episode.reward,
        pack(episode.metrics) if episode.metrics else None,
        episode.reason,
        episode.ended_at,
        episode.consumed_step,
        episode.dropped,
        episode.call_count,
        pack_details(episode.details),
    )


def episode_record(row: sqlite3.Row | tuple[Any, ...], calls: bytes | None) -> EpisodeRecord:
    """Build a record from the values of ``EPISODE_COLUMNS`` and, when asked for, the blob of its calls."""
    return EpisodeRecord(
        episode_id=row[0],
        kind=EpisodeKind(row[1]),
        client_id=row[2],
        task_set=row[3],
        task_id=row[4],
        group_id=row[5],
        repeat_index=row[6],
        step=row[7],
        policy_version=row[8],
        granted_at=row[9],
        idle_deadline_s=row[10],
        state=EpisodeState(row[11]),
        reward=row[12],
        metrics={} if row[13] is None else _metrics_decoder.decode(row[13]),
        reason=row[14],
        ended_at=row[15],
        consumed_step=row[16],
        dropped=row[17],
        call_count=row[18],
        details=EpisodeDetails() if row[19] is None else _details_decoder.decode(row[19]),
        calls=unpack_calls(calls),
    )
