"""The narrative: each stage's plan as it stood before anything ran, what was added later, what happened, what was decided."""

from __future__ import annotations

from typing import Any

from a3r.report.blocks import Block, Bullets, Code, Cut, Heading, Paragraph, Strong, Table
from a3r.report.numbers import plain, signed, utc
from a3r.report.records import AmendmentRecord, DecisionRecord, StageRecord
from a3r.report.study import Study
from a3r.report.synthesis import DECISION as SYNTHESIS
from a3r.report.tables import compact


def stages(study: Study) -> list[Block]:
    """All stages in order, then decisions that belong to none."""
    out: list[Block] = [Heading(2, "Stages")]
    for stage in study.records.stages:
        out += _stage(study, stage)
    loose = [d for d in study.records.decisions if d.stage_id is None and d.what != SYNTHESIS]
    return [*out, *(_decision(d) for d in loose)]


def _stage(study: Study, stage: StageRecord) -> list[Block]:
    records, plan = study.records, stage.plan
    gains = [g for g in study.gains if g.stage == stage.ordinal]
    return [
        Heading(3, (f"Stage {stage.ordinal}: ", Cut(stage.kind))),
        Paragraph(
            (
                f"Planned {utc(stage.created_at)} UTC, before any of its runs; plan ",
                Code(stage.plan_hash[:12]),
                ".",
            )
        ),
        *_plan(plan),
        *(_amendment(a) for a in records.amendments if a.stage_id == stage.id),
        Paragraph((Strong("What happened."),)),
        Table(
            ("cell", "seed", "outcome", "gain"),
            tuple(
                (Cut(g.blueprint), str(g.seed), outcome(study, g.run_id, g.state), signed(g.gain))
                for g in gains
            ),
        ),
        *(_decision(d) for d in records.decisions if d.stage_id == stage.id),
    ]


def outcome(study: Study, run_id: str, state: str) -> str:
    """The run's outcome, marked when it was not run here."""
    return f"{state} (reused)" if run_id in study.reused else state


def _plan(plan: dict[str, Any]) -> list[Block]:
    out: list[Block] = []
    if plan.get("question"):
        out.append(_named("Question.", plan["question"]))
    if plan.get("why"):
        out.append(_named("Why now.", plan["why"]))
    if plan.get("predictions"):
        out.append(Paragraph((Strong("Outcomes predicted before it ran."),)))
        out.append(Bullets(tuple(Cut(str(p), 600) for p in plan["predictions"])))
    if plan.get("decision_table"):
        rows: list[dict[str, Any]] = plan["decision_table"]
        keys = ("pattern", "conclusion", "next")
        table = tuple(tuple(Cut(str(r.get(k, "")), 400) for k in keys) for r in rows)
        out.append(Table(("if", "then", "next"), table))
    if plan.get("stop_rule"):
        out.append(_named("Stop rule.", plan["stop_rule"]))
    attainable = _attainable(plan.get("attainable"))
    if attainable:
        out.append(_named("What it could show at best.", attainable))
    return out


def _named(name: str, text: object) -> Paragraph:
    return Paragraph((Strong(name), " ", Cut(str(text), 600)))


def _amendment(found: AmendmentRecord) -> Paragraph:
    return Paragraph(
        (
            Strong("Amendment."),
            f" {utc(found.at)} UTC by ",
            Cut(found.by),
            ": ",
            Cut(compact(found.changes), 600),
            ". Reason: ",
            Cut(found.reason, 600),
        )
    )


def _decision(found: DecisionRecord) -> Paragraph:
    return Paragraph((Strong("Decision."), " ", Cut(found.what, 600), ": ", Cut(found.why, 1200)))


def _attainable(found: Any) -> str:
    if not isinstance(found, dict):
        return ""
    data: dict[str, Any] = dict(found)  # pyright: ignore[reportUnknownArgumentType] - JSON
    smallest = data.get("smallest_gain")
    design = (
        f"{data.get('n')} seeds a cell, {data.get('family')} confirmatory tests, "
        f"alpha {_alpha(data.get('alpha'))} for this stage"
    )
    if not data.get("family"):
        return f"Nothing is confirmed in this stage ({design})."
    note = f" {data['note']}" if data.get("note") else ""
    if not isinstance(smallest, int | float):
        return f"The smallest resolvable gain was not known ({design}).{note}"
    return (
        f"A mean gain at least {plain(float(smallest))} above the threshold, or a difference of that size, can be confirmed "
        f"({design}).{note}"
    )


def _alpha(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else "n/a"
