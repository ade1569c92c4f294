"""What is not shown, and what a language model remarked."""

from __future__ import annotations

from a3r.report.blocks import Block, Bullets, Cut, Heading, Paragraph, Prose
from a3r.report.limits import limits
from a3r.report.study import Study


def interpretation(study: Study) -> list[Block]:
    """The model's remarks, or why there are none; nothing when no model was asked."""
    found = study.synthesis
    if found.left_out:
        return [
            Heading(2, "Interpretation"),
            Paragraph(("Left out: ", Cut(found.left_out, 600), ".")),
        ]
    if not found.text:
        return []
    return [
        Heading(2, "Interpretation"),
        Paragraph(
            (
                "This section is prose of a language model (",
                Cut(found.by or "unnamed"),
                "), not computed. It holds no results; numbers in brackets name the claims that a remark is about.",
            )
        ),
        Prose("\n\n".join(found.text.splitlines())),
    ]


def not_shown(study: Study) -> list[Block]:
    """Limits of the study, by rule."""
    found = limits(study.records, study.analysis, study.question)
    return [Heading(2, "What is not shown"), Bullets(tuple(found))]
