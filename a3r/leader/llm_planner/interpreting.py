"""The last thing that a model does in a campaign: an order for the claims, and remarks on them. A report never waits for it long."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import JobFailed, ReplyInvalid
from a3r.core.llm import ModelMessage
from a3r.core.types import JobState
from a3r.leader.jobs import JobContext
from a3r.leader.llm.names import plain_name
from a3r.leader.llm.tools import quoted
from a3r.leader.tick import Tick
from a3r.report.claims import Claim
from a3r.report.export import records_from_store
from a3r.report.interpretation import MAX_REMARKS, Remark, interpretation_text, remark_faults
from a3r.report.prose_guard import reserved_names
from a3r.report.records import Records
from a3r.report.render import claims_of
from a3r.report.synthesis import DECISION

PURPOSE = "interpret"
SUBJECT = "report"
TRIES = 3
PATIENCE_S = 3600.0
"""How long a finished study waits for a model that does not answer."""


class Interpretation(BaseModel):
    """The reply that is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = Field(default=(), max_length=MAX_REMARKS)


def interpret(context: JobContext) -> dict[str, Any]:
    """The handler of ``interpret`` jobs: ``{"order", "text", "left_out"}``; ``left_out`` (code's words) when no remark may stand.

    Raises:
        ModelError: see ``Desk.ask``; the report then does without.
    """
    records = records_from_store(context.store, context.campaign.id)
    claims = claims_of(records)
    known = [claim.id for claim in claims]
    names = reserved_names(records.campaign.goal_spec, [b.name for b in records.blueprints])
    messages = [
        ModelMessage(role="system", content=prompt()),
        ModelMessage(role="user", content=_asked(records, claims)),
    ]
    good: list[Remark] = []
    order: tuple[str, ...] = ()
    try:
        for number in range(1, TRIES + 1):
            answer = context.desk.ask(f"remarks-{number}", PURPOSE, messages, Interpretation)
            order = tuple(c for c in dict.fromkeys(answer.order) if c in known)
            faults = {n: remark_faults(r, known, names) for n, r in enumerate(answer.remarks, 1)}
            good = [r for n, r in enumerate(answer.remarks, 1) if not faults[n]]
            if len(good) == len(answer.remarks):
                break
            messages += _refused(answer, faults)
    except ReplyInvalid:
        if not good:
            return {"order": [], "text": "", "left_out": "no reply had the asked form"}
    text = interpretation_text(good)
    left_out = "" if text else "no remark of the model kept to the rules for prose"
    return {"order": list(order), "text": text, "left_out": left_out}


def prompt() -> str:
    """What the interpreter is told."""
    return (files("a3r.leader.llm_planner") / "interpret.md").read_text(encoding="utf-8")


def interpreted(tick: Tick) -> bool:
    """True when the report may be written: the synthesis is recorded (also: that there is none, and why), or none is wanted."""
    if tick.campaign.planner != "llm" or any(
        d.what == DECISION for d in tick.store.decisions(tick.id)
    ):
        return True
    try:
        found = tick.result_of(PURPOSE, SUBJECT)
    except JobFailed as error:
        found = _without(
            f"the language model gave no interpretation ({error.details.get('reason') or 'failed'})"
        )
    if found is None:
        job = tick.job(PURPOSE, SUBJECT)
        waits = job.state is JobState.WAITING and tick.now - job.created_at > PATIENCE_S
        if not waits:
            return False
        found = _without("the language model did not answer in time")
    calls = [c for c in tick.store.llm_calls(tick.id) if c.purpose == PURPOSE]
    by = plain_name(calls[-1].model) if calls else ""
    why = (
        f"no remark stands: {found['left_out']}"
        if found["left_out"]
        else "remarks of a language model, kept apart from the results"
    )
    tick.decide_once(None, DECISION, why, {**found, "by": by})
    return True


def _without(why: str) -> dict[str, Any]:
    return {"order": [], "text": "", "left_out": why}


def _asked(records: Records, claims: list[Claim]) -> str:
    listed = [{"id": c.id, "kind": c.kind, "text": c.text} for c in claims]
    return "\n\n".join(
        [
            quoted("the goal", records.campaign.goal_text),
            quoted("the claims", json.dumps(listed, ensure_ascii=False)),
            "Order the claims and add remarks.",
        ]
    )


def _refused(answer: Interpretation, faults: dict[int, list[str]]) -> list[ModelMessage]:
    listed = "\n".join(f"- remark {n}: {'; '.join(found)}" for n, found in faults.items() if found)
    return [
        ModelMessage(role="assistant", content=answer.model_dump_json()),
        ModelMessage(
            role="user",
            content=f"These remarks may not stand:\n{listed}\nGive all of it again, without them or put otherwise.",
        ),
    ]
