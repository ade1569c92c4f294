"""What it cost."""

from __future__ import annotations

from a3r.report.blocks import Block, Cut, Heading, Paragraph, Table
from a3r.report.costs import Costs, costs
from a3r.report.numbers import plain
from a3r.report.study import Study


def effort(study: Study) -> list[Block]:
    """Time, processors, GPUs and the language model; unknown is ``n/a``."""
    found = costs(study.records)
    out: list[Block] = [
        Heading(2, "Costs"),
        Table(("what", "amount"), tuple(_rows(found))),
    ]
    if not found.purposes:
        return [*out, Paragraph("No language model was called.")]
    return [
        *out,
        Table(
            ("language model for", "calls", "failed", "prompt tokens", "completion tokens", "USD"),
            tuple(
                (
                    Cut(p.name),
                    str(p.calls),
                    str(p.failed),
                    str(p.prompt_tokens),
                    str(p.completion_tokens),
                    plain(p.usd, 4),
                )
                for p in found.purposes
            ),
        ),
        Paragraph(
            "A call of which no settlement is known counts at its full reserve, in tokens and in USD."
        ),
    ]


def _rows(found: Costs) -> list[tuple[str, str]]:
    return [
        ("wall clock, minutes (waiting for people included)", plain(found.wall_min, 1)),
        ("attempts", str(found.attempts)),
        ("minutes of attempts, one after the other", plain(found.attempt_min, 1)),
        ("of these, of attempts without accepted results", plain(found.wasted_min, 1)),
        ("processor minutes", plain(found.cpu_min, 1)),
        ("GPU-hours", plain(found.gpu_hours, 2)),
        ("training episodes of accepted attempts", str(found.episodes)),
        ("calls of a language model", str(found.llm_calls)),
        ("tokens of a language model", str(found.llm_tokens)),
        ("USD for a language model", plain(found.llm_usd, 4)),
    ]
