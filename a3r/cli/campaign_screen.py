"""``a3r campaign show`` for people: one screen."""

from __future__ import annotations

import time
from typing import Any

from a3r.cli.edge import fields

Json = dict[str, Any]


def campaign_screen(body: Json) -> list[str]:
    """State first, then the story so far, then what a person can do."""
    lines = fields(
        [
            ("campaign", f"{body['id']} ({body['name']})"),
            ("state", _state(body)),
            ("why", body["failure"]),
            ("review", body["review_mode"]),
            ("planner", body["planner"]),
            ("at once", body["capacity"]),
            ("report", body["report_path"]),
            ("language model", llm_text(body["llm"])),
        ]
    )
    lines += [f"{job_text(job)}" for job in body["jobs"]]
    for stage in body["stages"]:
        lines += ["", *_stage(stage)]
    if body["decisions"]:
        lines += ["", "decisions", *(f"  {d['what']}: {d['why']}" for d in body["decisions"])]
    if body["deviations"]:
        lines += ["", "deviations", *(f"  {d['what']}" for d in body["deviations"])]
    return [*lines, *_next(body)]


def _state(body: Json) -> str:
    stopping = body["stop_requested_at"] is not None and body["state"] not in ("stopped", "done")
    return f"{body['state']} (stop requested)" if stopping else str(body["state"])


def _stage(stage: Json) -> list[str]:
    runs = ", ".join(f"{n} {state}" for state, n in stage["runs"].items()) or "none yet"
    head = f"stage {stage['ordinal']} ({stage['kind']}, {stage['state']}): {stage['plan'].get('question', '')}"
    return [head, f"  runs: {stage['planned_runs']} planned; {runs}"]


def _next(body: Json) -> list[str]:
    if body.get("blocked_attempts"):
        lines = [f"  {a['label']}: {a['why']}" for a in body["blocked_attempts"]]
        return ["", "needs you (it goes on by itself once the cause is gone):", *lines]
    if body["to_review"]:
        names = ", ".join(body["to_review"])
        return ["", f"awaits review: {names}", *review_help(body["id"], body["to_review"][0])]
    if body["revisions_to_review"]:
        return ["", *revision_help(body["id"], body["revisions_to_review"])]
    if body["state"] in ("blocked", "paused"):
        return ["", f"'a3r campaign resume {body['id']}' lets it go on."]
    return []


def job_text(job: Json) -> str:
    """What long work of the leader is doing, or what it waits for."""
    name = f"{job['kind'].replace('_', ' ')} ({job['subject']})"
    if job["state"] == "waiting":
        since, until = _clock(job["waiting_since"]), _clock(job["not_before"])
        return (
            f"{name} waits for the language model since {since}: {job['detail']}; next try {until}"
        )
    if job["state"] == "failed":
        return f"{name} failed: {job['detail']}"
    return f"{name} is {'being done' if job['state'] == 'running' else 'to be done'}"


def llm_text(costs: Json) -> str:
    """What the language model has cost; empty when it was never asked."""
    if not costs["calls"]:
        return ""
    limit = "" if costs["limit_usd"] is None else f" of {costs['limit_usd']:g}"
    calls = "1 call" if costs["calls"] == 1 else f"{costs['calls']} calls"
    return f"{costs['usd']:.4f}{limit} USD, {costs['tokens']:,} tokens, {calls}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def revision_help(campaign_id: str, revisions: list[Json]) -> list[str]:
    """Which repaired clients wait for a person, how to read the first, and how to decide."""
    names = ", ".join(f"{r['blueprint']} revision {r['revision']}" for r in revisions)
    first = f"{campaign_id}/{revisions[0]['blueprint']}"
    flag = f"--revision {revisions[0]['revision']}"
    return [
        f"{len(revisions)} repaired client(s) await your review: {names}",
        f"  read:    a3r blueprint diff {first} {flag}",
        f"  approve: a3r blueprint approve {first} {flag}",
        f"  reject:  a3r blueprint reject {first} {flag}",
    ]


def review_help(campaign_id: str, name: str) -> list[str]:
    """How to read and how to approve."""
    return [
        f"read:    a3r blueprint show {campaign_id}/{name}",
        f"approve: a3r blueprint approve --stage {campaign_id}",
        f"reject:  a3r blueprint reject {campaign_id}/{name} --note WHY",
    ]
