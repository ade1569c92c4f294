"""What a campaign passes on: its claims are filed as findings when it ends, and a new goal looks up those related to it."""

from __future__ import annotations

from a3r.leader.goal import GoalSpec
from a3r.leader.tick import Tick
from a3r.report.coverage import PRIMARY
from a3r.report.records import Records
from a3r.report.study import Study
from a3r.store.findings import Found

LOOK_UP = "look up earlier findings"
"""``what`` of the decision that holds what earlier campaigns of the workspace found; absent when nothing is related."""
RELATED = 5
SETTLED = frozenset({"confirmed", "tied", "shown", "censored_low", "censored_high"})


def file_findings(tick: Tick, records: Records, report_path: str) -> None:
    """File every primary claim and every claim about a replicated cell. Safe to repeat."""
    study = Study(records)
    asked = question_words(tick.goal)
    found = [
        Found(
            id=f"{tick.id}/{claim.id}",
            text=claim.text,
            subject=claim.subject,
            question=asked,
            data={
                "kind": claim.kind,
                "values": claim.values,
                "settled": str(claim.values.get("status", "")) in SETTLED,
                "report": report_path,
                "ending": records.campaign.ending,
            },
        )
        for claim in study.claims
        if (claim.kind in PRIMARY or claim.kind == "cell")
        and claim.values.get("status") != "not_asked"
    ]
    # Written before a crash: nothing is left to write, so that a leader that dies at every write gets past this one.
    if [f.id for f in tick.store.findings(tick.id)] != [f.id for f in found]:
        tick.store.file_findings(tick.id, found, tick.now)


def question_words(goal: GoalSpec) -> str:
    """A goal in the words by which related findings are found."""
    asked = goal.question
    return " ".join(
        str(part)
        for part in (asked.kind, asked.factor, asked.across or "", goal.task, goal.model, goal.name)
        if part
    )


def look_up(tick: Tick) -> None:
    """Record what earlier campaigns found about this goal's factors, once, before the first stage is planned.

    The planner sees it through the records, so a replay sees the same; it is evidence for a choice of levels, never a result.
    """
    asked = tick.goal.question
    names = " ".join(x for x in (asked.factor, asked.across or "", tick.goal.task) if x)
    found = tick.store.search_findings(names, RELATED, without=tick.id)
    if found:
        evidence = {
            "findings": [{"id": f.id, "text": f.text, "question": f.question} for f in found]
        }
        why = (
            f"{len(found)} findings of earlier campaigns are related; none is a result of this one"
        )
        tick.decide_once(None, LOOK_UP, why, evidence)
