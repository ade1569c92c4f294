"""What the goal asked, what became of each demand, and what the words of the answer mean."""

from __future__ import annotations

from a3r.report.blocks import Block, Cut, Heading, Paragraph, Quote, Strong, Table
from a3r.report.contrast_results import ContrastAnalysis
from a3r.report.costs import costs
from a3r.report.coverage import coverage
from a3r.report.numbers import level_text, percent, signed
from a3r.report.results import MinimumAnalysis
from a3r.report.study import Study


def goal_coverage(study: Study) -> list[Block]:
    """One row for each question, setting, demand and limit."""
    rows = coverage(study.records, study.claims, costs(study.records))
    return [
        Heading(2, "What the goal asked"),
        Table(
            ("asked", "state", "why", "claims"),
            tuple(
                (Cut(r.asked, 400), r.state, Cut(r.why, 400), ", ".join(r.claims) or "-")
                for r in rows
            ),
        ),
        Paragraph(
            "Questions are answered by claims; settings and limits are compared with the blueprints and the records; a demand in words is for a reader."
        ),
    ]


def question(study: Study) -> list[Block]:
    """The goal quoted, the definitions, the pilot."""
    words = "trains" if study.question.asks_minimum else "shown"
    return [
        Heading(2, "Question"),
        Paragraph("The goal as it was given, quoted:"),
        Quote(study.records.campaign.goal_text),
        Paragraph((Strong(f'What "{words}" means.'), " ", _definition(study))),
        Paragraph((Strong("How the settings were chosen."), " ", _pilot(study))),
    ]


def _definition(study: Study) -> str:
    analysis = study.analysis
    told = _trains(study) if isinstance(analysis, MinimumAnalysis) else _shown(study, analysis)
    return f"{_measure(study)} {told}"


def _measure(study: Study) -> str:
    asked = study.question
    turned = (
        " (with the sign turned, since lower is better)" if asked.direction == "minimize" else ""
    )
    over = f"over {asked.items} fixed items{turned}, played by a sealed evaluator"
    if asked.measure == "final":
        return f"A run contributes its mean {asked.metric} at the end, {over}."
    return (
        f"The gain of a run is its mean {asked.metric} at the end minus that of version 0 (the weights before any update), "
        f"{over}."
    )


_PARTS = "each stage that confirms spends its own part of alpha, two thirds of what is left"


def _trains(study: Study) -> str:
    asked, analysis = study.question, study.analysis
    confidence, least, alpha = (
        percent(analysis.confidence),
        signed(analysis.min_gain),
        level_text(asked.alpha),
    )
    return (
        f"A cell trains when, on fresh seeds only, the lower bound of the {confidence} t interval of the gain over seeds is above "
        f"{least} and the one-sided p, Holm-adjusted over the campaign's family of {analysis.family} tests (both directions of every "
        f"cell that planned fresh seeds; {_PARTS}), is below {alpha}. It is shown not to train when the upper bound is below {least} and the p "
        "of the other direction, adjusted in the same family, is below that too. Anything between is not shown to train."
    )


def _shown(study: Study, analysis: ContrastAnalysis) -> str:
    confidence, alpha = percent(analysis.confidence), level_text(study.question.alpha)
    margin = (
        "The goal names no smallest effect, so nothing can be shown to be equal."
        if analysis.smallest_effect is None
        else f"Two levels are equivalent when two one-sided tests against {analysis.smallest_effect:g} hold in the same family."
    )
    return (
        "A difference is taken seed by seed, over seeds that are fresh in every cell that it needs. It is shown when its "
        f"{confidence} t interval leaves out 0 and the one-sided p, Holm-adjusted over the campaign's family of {analysis.family} "
        f"tests ({_PARTS}), is below {alpha}. {margin} Anything else is not shown to differ, which is no finding of equality."
    )


def _pilot(study: Study) -> Cut:
    disclosed = str(study.records.campaign.goal_spec.get("pilot") or "").strip()
    return Cut(disclosed or "The goal discloses no pilot.", 4000)
