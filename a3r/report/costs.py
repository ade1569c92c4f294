"""What a campaign cost, from records: time, processors, GPUs, episodes, the language model. Unknown stays unknown, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from a3r.report.records import AttemptRecord, CallRecord, Records


@dataclass(frozen=True)
class Purpose:
    """Calls of the language model for one purpose."""

    name: str
    calls: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    usd: float


@dataclass(frozen=True)
class Costs:
    """Sums over every attempt and call, failed ones included; reused runs cost nothing here. None = something is unknown."""

    wall_min: float | None
    """From the campaign's start to the last thing recorded."""
    attempts: int
    attempt_min: float | None
    """Minutes that attempts took, one after the other."""
    wasted_min: float | None
    """Of these, minutes of attempts whose results were not accepted."""
    cpu_min: float | None
    gpu_hours: float | None
    episodes: int
    """Training episodes of accepted attempts."""
    llm_calls: int
    llm_tokens: int
    llm_usd: float
    """A call that nobody settled counts at its reserve."""
    purposes: tuple[Purpose, ...]


def costs(records: Records) -> Costs:
    """Everything that the records tell of costs."""
    accepted = {r.accepted_attempt for r in records.runs}
    tried = [
        a for r in records.runs for a in r.attempts if a.started_at is not None and not a.reused
    ]
    purposes = _purposes(records.calls)
    reused = {r.id for r in records.runs if (a := r.accepted()) is not None and a.reused}
    return Costs(
        wall_min=_wall_min(records),
        attempts=len(tried),
        attempt_min=_sum(_minutes(a) for a in tried),
        wasted_min=_sum(_minutes(a) for a in tried if a.id not in accepted),
        cpu_min=_sum(_cpu_min(a) for a in tried),
        gpu_hours=_sum(_gpu_hours(a) for a in tried),
        episodes=sum(s.episodes or 0 for s in records.steps if s.run_id not in reused),
        llm_calls=len(records.calls),
        llm_tokens=sum(_tokens(c) for c in records.calls),
        llm_usd=sum(p.usd for p in purposes),
        purposes=purposes,
    )


def _wall_min(records: Records) -> float | None:
    times = [e.at for e in records.events] + [d.at for d in records.decisions]
    times += [a.finished_at for r in records.runs for a in r.attempts if a.finished_at is not None]
    return (max(times) - records.campaign.created_at) / 60 if times else None


def _minutes(attempt: AttemptRecord) -> float | None:
    if attempt.started_at is None or attempt.finished_at is None:
        return None
    return (attempt.finished_at - attempt.started_at) / 60


def _cpu_min(attempt: AttemptRecord) -> float | None:
    used: Any = attempt.summary.get("cpu_s")
    if not isinstance(used, dict):
        return None
    parts: Sequence[Any] = list(used.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    if any(not isinstance(p, int | float) for p in parts):
        return None
    return sum(parts) / 60


def _gpu_hours(attempt: AttemptRecord) -> float | None:
    gpus: Any = attempt.placement.get("gpus") or ()
    if not gpus:
        return 0.0
    minutes = _minutes(attempt)
    return None if minutes is None else len(gpus) * minutes / 60


def _purposes(calls: Sequence[CallRecord]) -> tuple[Purpose, ...]:
    out: list[Purpose] = []
    for name in dict.fromkeys(c.purpose for c in calls):
        mine = [c for c in calls if c.purpose == name]
        out.append(
            Purpose(
                name=name,
                calls=len(mine),
                failed=sum(bool(c.error) for c in mine),
                prompt_tokens=sum(c.prompt_tokens or 0 for c in mine),
                completion_tokens=sum(c.completion_tokens or 0 for c in mine),
                usd=sum(c.reserved_usd if c.cost_usd is None else c.cost_usd for c in mine),
            )
        )
    return tuple(out)


def _tokens(call: CallRecord) -> int:
    if call.prompt_tokens is None or call.completion_tokens is None:
        return call.reserved_tokens
    return call.prompt_tokens + call.completion_tokens


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
