"""The order of a report's sections."""

from __future__ import annotations

from a3r.report.blocks import Document
from a3r.report.sections.answer import answer
from a3r.report.sections.changes import deviations, review
from a3r.report.sections.closing import environment, reproduce
from a3r.report.sections.effort import effort
from a3r.report.sections.goal import goal_coverage, question
from a3r.report.sections.history import chronicle, runs
from a3r.report.sections.judged import judged
from a3r.report.sections.remarks import interpretation, not_shown
from a3r.report.sections.results import denominators, results
from a3r.report.sections.stages import stages
from a3r.report.study import Study

SECTIONS = (
    answer,
    goal_coverage,
    question,
    denominators,
    results,
    judged,
    interpretation,
    not_shown,
    stages,
    deviations,
    review,
    effort,
    chronicle,
    runs,
    environment,
    reproduce,
)


def document(study: Study) -> Document:
    """The whole report."""
    blocks = tuple(block for section in SECTIONS for block in section(study))
    return Document(title=f"{study.records.campaign.name}: report", blocks=blocks)
