"""When which attempt ran: lanes for a figure, packed so that attempts at the same time lie in different lanes."""

from __future__ import annotations

from typing import Any

from a3r.report.records import AttemptRecord, Records


def timeline(records: Records) -> dict[str, Any]:
    """Minutes since the campaign's start: ``bars`` (lane, stage, start, end, accepted) and ``marks`` (decisions).

    An attempt without an end ends with the last thing recorded; one that never began, or was reused, is left out.
    """
    zero = records.campaign.created_at
    ordinal = {s.id: s.ordinal for s in records.stages}
    stage_of = {b.id: ordinal[b.stage_id] for b in records.blueprints}
    found = sorted(
        (
            (a.started_at, a, stage_of[r.blueprint_id], a.id == r.accepted_attempt)
            for r in records.runs
            for a in r.attempts
            if a.started_at is not None and not a.reused
        ),
        key=lambda x: (x[0], x[1].id),
    )
    last = _last(records, [a for _, a, _, _ in found])
    lanes: list[float] = []
    bars: list[dict[str, Any]] = []
    for start, attempt, stage, accepted in found:
        end = last if attempt.finished_at is None else attempt.finished_at
        lane = _free(lanes, start)
        lanes[lane] = end
        bars.append(
            {
                "attempt": attempt.id,
                "lane": lane,
                "stage": stage,
                "start": (start - zero) / 60,
                "end": (end - zero) / 60,
                "accepted": accepted,
            }
        )
    marks = [{"at": (d.at - zero) / 60, "what": d.what} for d in records.decisions]
    return {"lanes": len(lanes), "bars": bars, "marks": marks}


def _last(records: Records, attempts: list[AttemptRecord]) -> float:
    times = [a.finished_at for a in attempts if a.finished_at is not None]
    times += [a.started_at for a in attempts if a.started_at is not None]
    times += [d.at for d in records.decisions]
    return max(times, default=records.campaign.created_at)


def _free(lanes: list[float], start: float) -> int:
    """The first lane whose last attempt has ended; a new one when there is none."""
    for number, end in enumerate(lanes):
        if end <= start:
            return number
    lanes.append(start)
    return len(lanes) - 1
