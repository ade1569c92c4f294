"""``a3r run show`` for people: what happened to one run, in one screen."""

from __future__ import annotations

import time
from typing import Any

from a3r.cli.edge import fields
from a3r.cli.progress import gain_text

Json = dict[str, Any]

BAD = ("failed", "lost", "blocked", "unreachable", "cancelled")
LOGS = ("client", "server", "evaluator", "environment", "supervisor")


def run_screen(body: Json, log_name: str | None, tail: list[str]) -> list[str]:
    """State, then each attempt, then the last lines of the process that failed."""
    lines = fields(
        [
            ("run", f"{body['id']} ({body['label']})"),
            ("state", body["state"]),
            ("why", _why(body)),
            ("campaign", body["campaign"]),
            ("factors", " ".join(f"{k}={v}" for k, v in body["factors"].items())),
            ("counts", f"attempt {_ordinal(body)}" if body["accepted_attempt"] else None),
        ]
    )
    for attempt in body["attempts"]:
        lines += ["", *_attempt(attempt, body["stop_at_step"])]
    if not body["attempts"]:
        lines += ["", "no attempt yet: it waits for a free place, or for a review"]
    if tail:
        lines += ["", f"last lines of {log_name}:", *(f"  | {line[:160]}" for line in tail)]
    return lines


def _why(body: Json) -> str:
    return ": ".join(str(part) for part in (body["failure"], body["reason"]) if part)


def _ordinal(body: Json) -> int:
    return next(a["ordinal"] for a in body["attempts"] if a["id"] == body["accepted_attempt"])


def _attempt(attempt: Json, stop_at_step: int | None) -> list[str]:
    lines = [f"attempt {attempt['ordinal']}: {attempt['state']} on {attempt['worker_id'] or '-'}"]
    lines += [f"  {line}" for line in fields(_facts(attempt, stop_at_step))]
    told = [e for e in attempt["events"] if e["kind"] in TOLD]
    return lines + [f"  {_clock(e['at'])}  {_event(e)}" for e in told[-8:]]


def _facts(attempt: Json, stop_at_step: int | None) -> list[tuple[str, object]]:
    why = [attempt["failure"], attempt["reason"]]
    rounds = [
        f"{r['name']} {_mean(r['mean'])} ({r['scored']}/{r['planned']})" for r in attempt["rounds"]
    ]
    return [
        ("why", ": ".join(str(part) for part in why if part)),
        ("doing", attempt["detail"] if attempt["live"] else None),
        ("stop asked", attempt["stop_reason"]),
        ("step", f"{attempt['step'] or 0} of {stop_at_step or '?'}, {attempt['steps']} recorded"),
        ("rounds", ", ".join(rounds)),
        ("gain", None if attempt["gain"] is None else gain_text(attempt["gain"])),
        ("starts", _generations(attempt["events"])),
        ("walls", _walls(attempt["events"])),
        ("logs", ", ".join(f"{k} ({v} bytes)" for k, v in attempt["logs"].items())),
        ("id", attempt["id"]),
    ]


def _generations(events: list[Json]) -> str:
    """Process starts by role: ``client 2, server 1``. More than one = it was restarted."""
    counts: dict[str, int] = {}
    for event in events:
        if event["kind"] == "process_started":
            role = str(event["data"].get("role") or event["actor"])
            counts[role] = counts.get(role, 0) + 1
    return ", ".join(f"{role} {n}" for role, n in counts.items())


def _walls(events: list[Json]) -> str:
    """What kept the client's code in, and what could not: ``files, network; not: memory``."""
    boxes = [
        e["data"]["sandbox"]
        for e in events
        if e["kind"] == "environment" and e["data"].get("sandbox")
    ]
    if not boxes:
        return ""
    last: Json = boxes[-1]
    missing = ", ".join(last.get("not_enforced", {}))
    return f"{last['tool']}: {', '.join(last['enforced']) or 'none'}" + (
        f"; not: {missing}" if missing else ""
    )


def _mean(mean: float | None) -> str:
    return "incomplete" if mean is None else f"{mean:.3f}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


TOLD = frozenset(
    {
        "process_exited",
        "client_restarted",
        "blocked",
        "unblocked",
        "stop_rule",
        "engine_restarted",
        "server_restarted",
        "evaluator_restarted",
        "gpus_not_free",
        "trainer_not_finite",
        "deviation",
    }
    | {"attempt_failed", "attempt_lost", "attempt_unreachable", "attempt_blocked", "late_result"}
)
"""Events that explain something."""


def _event(event: Json) -> str:
    data: Json = event["data"]
    shown = " ".join(f"{k}={v}" for k, v in data.items() if isinstance(v, str | int | float))
    words = f"{event['actor']} {event['kind'].replace('_', ' ')} {shown}"
    return " ".join(words.split())[:160]


def failing_log(body: Json) -> str | None:
    """Return the log to look at when the last attempt went wrong: of the process that its reason names, else the client's."""
    if not body["attempts"]:
        return None
    last = body["attempts"][-1]
    further = sorted(n for n in last["logs"] if n.startswith(("client-", "server-")))
    # A log that goes on elsewhere, or of one of several servers, is looked at first where the reason names it.
    named = [n for n in further if not n.endswith(".tail")]
    there = [name for name in (*named, *LOGS) if last["logs"].get(name)]
    if last["state"] not in BAD or not there:
        return None
    told = f"{last['failure'] or ''} {last['reason']}".lower()
    known = [name for name in there if name in LOGS] or there
    name = next((name for name in there if name in told), known[0])
    # A log that went on in another file: its end came apart.
    return f"{name}.tail" if last["logs"].get(f"{name}.tail") else name
