"""Events as lines for people. What is not worth a line has none: the whole history is in the records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def event_text(event: Json) -> str | None:
    """Return the event in words; None when it is not worth a line."""
    kind = str(event["kind"])
    more: Json = event.get("more") or {}
    words = KINDS.get(kind)
    if words is not None:
        return words(event["data"], more)
    if kind.startswith("blueprint_"):
        return f"blueprint {event['subject']}: {kind.removeprefix('blueprint_')} ({event['actor']})"
    if kind.startswith("revision_"):
        told = f"client of {event['subject']} repaired (revision {event['data'].get('revision')})"
        return f"{told}: {kind.removeprefix('revision_')} by {event['data'].get('by')}"
    if kind.startswith("campaign_"):
        return _with(
            f"campaign {_words(kind.removeprefix('campaign_'))}", event["data"].get("failure")
        )
    return None


def event_line(event: Json) -> str | None:
    """The event in words after its local time."""
    text = event_text(event)
    clock = time.strftime("%H:%M:%S", time.localtime(event["at"]))
    return None if text is None else f"{clock}  {text}"


def gain_text(gain: float | None) -> str:
    """``gain +0.123``, or that it is not known."""
    return "gain not known" if gain is None else f"gain {gain:+.3f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _with(text: str, reason: object) -> str:
    return f"{text}: {reason}" if reason else text


def _label(more: Json) -> str:
    again = f" (attempt {more['ordinal']})" if more.get("ordinal", 1) > 1 else ""
    return f"{more.get('label', 'a run')}{again}"


def _stage_planned(data: Json, more: Json) -> str:
    head = f"stage {more.get('ordinal', '?')} ({data.get('kind', '')}) planned"
    count = f"{more.get('blueprints', '?')} blueprints, {more.get('runs', '?')} runs"
    return _with(f"{head}, {count}", more.get("question"))


def _decided(data: Json, _more: Json) -> str:
    return _with(f"decided: {data.get('what', '')}", data.get("why"))


def _succeeded(_data: Json, more: Json) -> str:
    return f"run finished: {_label(more)}, {gain_text(more.get('gain'))}"


def _attempt_failed(data: Json, more: Json) -> str:
    return _with(
        f"attempt failed: {_label(more)} ({data.get('failure') or 'unknown'})", data.get("reason")
    )


def _run_over(word: str) -> Callable[[Json, Json], str]:
    def words(data: Json, more: Json) -> str:
        return _with(f"run {word}: {_label(more)}", data.get("reason"))

    return words


def _attempt(word: str) -> Callable[[Json, Json], str]:
    def words(data: Json, more: Json) -> str:
        return _with(f"{word}: {_label(more)}", data.get("reason") or data.get("detail"))

    return words


def _deviation(data: Json, more: Json) -> str:
    return _with(f"deviation in {_label(more)}: {data.get('what', '')}", data.get("why"))


def _job_waiting(data: Json, _more: Json) -> str:
    until = time.strftime("%H:%M:%S", time.localtime(data["not_before"]))
    return (
        f"{_words(data['kind'])} waits for the language model: {data['detail']}; next try {until}"
    )


KINDS: dict[str, Callable[[Json, Json], str]] = {
    "stage_planned": _stage_planned,
    "stage_analysed": lambda _data, more: f"stage {more.get('ordinal', '?')} analysed",
    "stage_abandoned": lambda _data, more: f"stage {more.get('ordinal', '?')} abandoned",
    "decided": _decided,
    "attempt_leased": lambda _data, more: f"run started: {_label(more)}",
    "attempt_succeeded": _succeeded,
    "attempt_failed": _attempt_failed,
    "attempt_blocked": _attempt("attempt blocked, a person is needed"),
    "attempt_unreachable": _attempt("no word from the worker of"),
    "attempt_lost": _attempt("attempt given up"),
    "attempt_cancelled": _attempt("attempt cancelled"),
    "run_failed": _run_over("failed"),
    "run_cancelled": _run_over("cancelled"),
    "deviation": _deviation,
    "late_result": _attempt("a result came too late and was not accepted"),
    "job_waiting": _job_waiting,
    "job_failed": lambda data, _more: _with(f"{_words(data['kind'])} failed", data["detail"]),
    "stop_requested": lambda _data, _more: "stop requested",
}
"""Event kind -> its words."""


def overview(campaign: Json, runs: list[Json]) -> str:
    """One line on how far the campaign is."""
    counts: dict[str, int] = campaign["runs"]
    over = sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled"))
    text = f"stage {campaign['stage']}, {over} of {sum(counts.values())} runs over"
    if blocked := len(campaign.get("blocked_attempts", ())):
        text += f", {blocked} blocked: a person is needed"
    live = [r for r in runs if r["state"] == "active"]
    return f"{text}; {', '.join(run_text(r) for r in live)}" if live else text


def run_text(run: Json) -> str:
    """``s1-b16 seed 3 step 12/40``."""
    step = "" if run["step"] is None else f" step {run['step']}/{run['stop_at_step'] or '?'}"
    return f"{run['label']}{step or ' ' + str(run['attempt_state'])}"
