"""The referee on the corpus of seeded faults: how often it is right when it speaks, and how often it speaks when it should."""

from __future__ import annotations

from a3r.testing.faults.score import EACH, corpus_score
from a3r.testing.trust.figure import Figure, percent

PRECISION, RECALL = 0.95, 0.8


def referee_figures(scale: float = 1.0) -> list[Figure]:
    """Precision, recall, and clean runs that were excluded."""
    found = corpus_score(max(3, int(EACH * scale)))
    weakest = min(found.rules, key=lambda t: 1.0 if t.recall is None else t.recall)
    missing = f"weakest: {weakest.rule} ({percent(weakest.recall or 0.0)})"
    return [
        Figure(
            "referee: findings that are right (precision)",
            f"at least {percent(PRECISION)}",
            percent(found.precision),
            found.precision >= PRECISION,
            f"{found.faulty} runs with a seeded fault, weak ones included, and {found.clean} clean ones.",
        ),
        Figure(
            "referee: seeded faults that are found (recall)",
            f"at least {percent(RECALL)}",
            percent(found.recall),
            found.recall >= RECALL,
            f"Of {len(found.rules)} rules the {missing}.",
        ),
        Figure(
            "referee: clean runs that are excluded",
            "0",
            f"{found.clean_invalid} of {found.clean}",
            found.clean_invalid == 0,
            f"{found.clean_suspect} are called suspect: they stay in the results and are named.",
        ),
    ]
