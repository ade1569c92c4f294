"""``a3r campaign show`` for people: one screen."""

from __future__ import annotations

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
        ]
    )
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
    if body["state"] in ("blocked", "paused"):
        return ["", f"'a3r campaign resume {body['id']}' lets it go on."]
    return []


def review_help(campaign_id: str, name: str) -> list[str]:
    """How to read and how to approve."""
    return [
        f"read:    a3r blueprint show {campaign_id}/{name}",
        f"approve: a3r blueprint approve --stage {campaign_id}",
        f"reject:  a3r blueprint reject {campaign_id}/{name} --note WHY",
    ]
