"""The referee on its corpus of seeded faults: clean runs that it excludes, wrong findings, faults that it misses."""

from __future__ import annotations

from a3r.report.referee.rules import RULES
from a3r.testing.faults.score import CorpusScore, corpus_score
from a3r.testing.trust.figure import Figure, percent

PRECISION, RECALL = 0.97, 0.80
CLEAN_SUSPECT = 0.02
"""Share of clean runs that may be doubted."""


def referee_figures() -> list[Figure]:
    """Figures of the published part of the corpus (seconds)."""
    score = corpus_score()
    made_wrong = [t for t in score.rules if t.rule in {r.name for r in RULES if r.excludes}]
    precision = min(t.precision if t.precision is not None else 1.0 for t in made_wrong)
    cases = f"{score.faulty} runs with one seeded fault each, {score.clean} clean ones"
    return [
        Figure(
            name="clean runs that the referee excludes",
            goal="0",
            result=f"{score.clean_invalid} of {score.clean}",
            met=score.clean_invalid == 0,
            note="exclusion is for faults of how a run was made; how it came out can only make it suspect",
        ),
        Figure(
            name="clean runs that the referee doubts",
            goal=f"at most {percent(CLEAN_SUSPECT)}",
            result=percent(score.clean_suspect / score.clean),
            met=score.clean_suspect <= CLEAN_SUSPECT * score.clean,
        ),
        Figure(
            name="referee: findings that are right",
            goal=f"at least {percent(PRECISION)}",
            result=percent(score.precision),
            met=score.precision >= PRECISION and precision == 1.0,
            note=f"{cases}; rules that exclude must all be at 100 %",
        ),
        Figure(
            name="referee: seeded faults found",
            goal=f"at least {percent(RECALL)}",
            result=percent(score.recall),
            met=score.recall >= RECALL,
            note=f"faults come in random strength, barely visible ones included; {_weakest(score)}",
        ),
    ]


def _weakest(score: CorpusScore) -> str:
    rates = sorted((t.recall or 0.0, t.rule) for t in score.rules)
    return "least for " + ", ".join(f"{rule} ({percent(rate)})" for rate, rule in rates[:3])
