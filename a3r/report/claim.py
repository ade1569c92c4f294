"""One result sentence with its values, and the phrases that all sentences share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from a3r.report.cell_clients import mixed_text
from a3r.report.numbers import interval, p_phrase, percent, scalar_text, signed
from a3r.report.question import Question
from a3r.report.records import Scalar
from a3r.report.results import Bounds, Cell, Verdict

Kind: TypeAlias = Literal[
    "minimum",
    "best",
    "comparison",
    "interaction",
    "cell",
    "shift",
    "difference",
    "threshold",
    "noise",
    "denominators",
]
"""minimum, best, comparison, interaction and shift answer the goal's question; the others are their evidence."""


class Inputs(BaseModel):
    """What a claim was computed from."""

    model_config = ConfigDict(frozen=True)

    runs: tuple[str, ...]
    rounds: tuple[str, ...] = ("initial", "final")
    metric: str


class Claim(BaseModel):
    """One result sentence with its values."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: Kind
    subject: str
    values: dict[str, Any]
    inputs: Inputs
    text: str


def made(
    kind: Kind,
    subject: str,
    values: dict[str, Any],
    cells: Sequence[Cell],
    text: str,
    question: Question,
) -> Claim:
    """A claim without its id; enum members in ``values`` become plain words, ``text`` a sentence.

    Where the cells ran different revisions of a client, the sentence says so: no claim compares code silently.
    """
    runs = tuple(g.run_id for c in cells for g in c.gains)
    mixed = mixed_text((g.client, g.client_origin) for c in cells for g in c.gains)
    plain_values = {k: str(v) if isinstance(v, str) else v for k, v in values.items()}
    return Claim(
        id="",
        kind=kind,
        subject=subject,
        values=plain_values,
        inputs=Inputs(runs=runs, metric=question.metric),
        text=sentence(f"{text.rstrip('.')}; {mixed}" if mixed else text),
    )


def sentence(text: str) -> str:
    """First letter in upper case, one full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def place(condition: Scalar, across: str | None) -> str:
    """``At max_response_tokens 10, ``, or nothing when no conditions are compared."""
    return "" if across is None else f"At {across} {scalar_text(condition)}, "


def subject_at(text: str, condition: Scalar, across: str | None) -> str:
    """``train_batch_size at 10``, or the text alone when no conditions are compared."""
    return text if across is None else f"{text} at {scalar_text(condition)}"


def measured(cell: Cell, question: Question) -> str:
    """Direction, size, interval, n and adjusted p of a cell's fresh seeds, or that there are too few."""
    found = cell.fresh
    if found is None or found.low is None or found.high is None:
        count = found.n if found else 0
        return f"{count} of {cell.fresh_planned} fresh seeds gave a result, too few for an interval"
    base = f"n = {found.n} fresh seeds, {percent(question.confidence)} t interval"
    if not question.asks_minimum:
        return f"{amount(found, question)} ({base}){camps(cell)}"
    side, p = "above", cell.p_adjusted
    if cell.verdict is Verdict.SHOWN_NOT:
        side, p = "below", cell.p_not_adjusted
    return (
        f"{amount(found, question)} ({base}; gain {side} {signed(question.min_gain)}: Holm-adjusted {p_phrase(p)})"
        f"{camps(cell)}"
    )


def amount(found: Bounds, question: Question) -> str:
    """``held-out reward rises by +0.120 [+0.080, +0.160]``; of a final value: ``held-out reward ends at ...``."""
    if question.measure == "final":
        return f"held-out reward ends at {interval(found)}"
    word = "changes"
    if found.low is not None and found.low > 0:
        word = "rises"
    elif found.high is not None and found.high < 0:
        word = "falls"
    return f"held-out reward {word} by {interval(found)}"


def camps(cell: Cell) -> str:
    """Says of a cell whose seeds fall into two camps that its mean describes neither; empty otherwise."""
    if not cell.camps:
        return ""
    return f", but the seeds fall into two camps, {cell.camps}: the mean describes neither"
