"""report.md = render(records): a pure function, byte-stable, without clock, locale or environment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from a3r.core.types import ReviewMode
from a3r.report.analysis import minimum
from a3r.report.claims import Claim, compute_claims
from a3r.report.escape import code, inline, quoted
from a3r.report.figures import FIGURES
from a3r.report.gains import RunGain, run_gains
from a3r.report.limits import limits
from a3r.report.numbers import (
    interval,
    level_text,
    p_value,
    percent,
    plain,
    scalar_text,
    signed,
    utc,
)
from a3r.report.question import Question, question_of
from a3r.report.records import Records, StageRecord
from a3r.report.results import Cell, MinimumAnalysis, Verdict
from a3r.report.tables import (
    deviation_rows,
    environment_rows,
    review_rows,
    run_rows,
    stage_counts,
)
from a3r.report.trace import trace


def claims_of(records: Records) -> list[Claim]:
    """Every claim of the campaign."""
    question = question_of(records.campaign.goal_spec)
    return compute_claims(minimum(records), run_gains(records, question), question)


def render(records: Records, claims: Sequence[Claim], interpretation: str = "") -> str:
    """Return report.md. ``claims`` are ``claims_of(records)``; ``interpretation`` is optional prose, shown as quoted."""
    question = question_of(records.campaign.goal_spec)
    analysis, gains = minimum(records), run_gains(records, question)
    view = {
        **_answer(records, claims, analysis, question),
        **_evidence(records, gains, analysis, question),
        "interpretation": interpretation,
        "stages": [_stage(records, stage, gains) for stage in records.stages],
        "other_decisions": [d for d in records.decisions if d.stage_id is None],
        "deviations": deviation_rows(records),
        "reviews": review_rows(records),
        "trace": trace(records, gains),
        "event_count": len(records.events),
        "environment": environment_rows(records),
    }
    return _template().render(view)


def _answer(
    records: Records, claims: Sequence[Claim], analysis: MinimumAnalysis, question: Question
) -> dict[str, Any]:
    front = [c for c in claims if c.kind == "minimum"]
    front += [c for c in claims if c.kind == "shift" and analysis.across is not None]
    front += [c for c in claims if c.kind == "denominators"]
    return {
        "campaign": records.campaign,
        "question": question,
        "analysis": analysis,
        "answer": front,
        "details": [c for c in claims if c.kind in ("cell", "difference")],
        "denominators": next(c for c in claims if c.kind == "denominators"),
        "review_sentence": review_sentence(records),
        "confidence": percent(analysis.confidence),
        "min_gain": signed(analysis.min_gain),
        "alpha": level_text(question.alpha),
        "pilot": _pilot(records),
        "limits": limits(records, analysis, question),
    }


def _evidence(
    records: Records, gains: list[RunGain], analysis: MinimumAnalysis, question: Question
) -> dict[str, Any]:
    cells = [c for a in analysis.conditions for c in a.cells]
    return {
        "stage_counts": stage_counts(records, gains),
        "excluded": [g for g in gains if g.excluded],
        "condition_name": question.across or "condition",
        "cells": cells,
        "verdicts": [verdict_text(c) for c in cells],
        "figures": FIGURES,
        "runs": run_rows(records, gains),
        "seeds_sentence": seeds_sentence(gains),
    }


def verdict_text(cell: Cell) -> str:
    """The fresh verdict, or the exploratory lean marked as such."""
    if cell.verdict is not Verdict.NOT_REPLICATED:
        return str(cell.verdict)
    if cell.lean is None:
        return "no result"
    return f"leans {'yes' if cell.lean else 'no'} (exploratory)"


def review_sentence(records: Records) -> str:
    """Who reviewed what before dispatch; nothing is implied that no verdict shows."""
    if records.campaign.review_mode == ReviewMode.NONE:
        return "No human reviewed these blueprints before dispatch."
    approved = sum(b.review == "approved" for b in records.blueprints)
    return (
        f"{approved} of {len(records.blueprints)} blueprints carry a standing approval of exactly this version "
        f"(review mode {records.campaign.review_mode})."
    )


def seeds_sentence(gains: list[RunGain]) -> str:
    """How many results come from a run whose own record states the planned seed."""
    used = sum(g.gain is not None for g in gains)
    refused = sum("own record" in g.excluded for g in gains)
    return (
        f"Seeds are proven from the runs' own records: {used} results carry the planned seed; "
        f"{refused} runs were left out because their record says another or none."
    )


def _pilot(records: Records) -> str:
    disclosed = str(records.campaign.goal_spec.get("pilot") or "").strip()
    return inline(disclosed, 4000) if disclosed else "The goal discloses no pilot."


def _stage(records: Records, stage: StageRecord, gains: list[RunGain]) -> dict[str, Any]:
    plan = stage.plan
    return {
        "ordinal": stage.ordinal,
        "kind": stage.kind,
        "created_at": stage.created_at,
        "plan_hash": stage.plan_hash,
        "question": plan.get("question", ""),
        "why": plan.get("why", ""),
        "predictions": plan.get("predictions", []),
        "table": plan.get("decision_table", []),
        "stop_rule": plan.get("stop_rule", ""),
        "attainable": _attainable(plan.get("attainable")),
        "gains": [g for g in gains if g.stage == stage.ordinal],
        "decisions": [d for d in records.decisions if d.stage_id == stage.id],
    }


def _attainable(found: Any) -> str:
    if not isinstance(found, dict):
        return ""
    data: dict[str, Any] = dict(found)  # pyright: ignore[reportUnknownArgumentType] - JSON
    smallest = data.get("smallest_gain")
    design = (
        f"{data.get('n')} seeds a cell, {data.get('family')} confirmatory tests, "
        f"family-wise alpha {data.get('alpha')}"
    )
    if not data.get("family"):
        return f"Nothing is confirmed in this stage ({inline(design)})."
    if smallest is None:
        return f"The smallest resolvable gain was not known ({inline(design)})."
    return f"A mean gain at least {plain(float(smallest))} above the threshold can be confirmed ({inline(design)})."


_FILTERS = {
    "md": inline,
    "code": code,
    "quoted": quoted,
    "interval": interval,
    "plain": plain,
    "signed": signed,
    "p": p_value,
    "level": level_text,
    "scalar": scalar_text,
    "utc": utc,
}


@cache
def _template() -> jinja2.Template:
    """The template with its filters; autoescape is off because the target is Markdown and ``md`` escapes it."""
    environment = jinja2.Environment(  # noqa: S701 - not HTML
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    untyped: Any = environment  # jinja2 leaves the type of its filters open
    untyped.filters.update(_FILTERS)
    source = (files("a3r.report") / "templates" / "report.md.j2").read_text(encoding="utf-8")
    return environment.from_string(source)
