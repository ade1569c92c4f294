"""What a language model may add to a report: an order for the claims, and remarks. Read from the decision that recorded it.

It can leave nothing out and state nothing: every claim is printed whatever the order says, and remarks that break a rule of
``a3r.report.interpretation`` are left out with the reason. So a report needs no trust in the model, nor in what stored its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from a3r.report.claims import Claim
from a3r.report.interpretation import interpretation_faults
from a3r.report.prose_guard import reserved_names
from a3r.report.records import Records

DECISION = "interpret the results"
"""``what`` of the decision that holds the synthesis; its evidence: ``order``, ``text``, ``by``, ``left_out``."""


@dataclass(frozen=True)
class Synthesis:
    """The admissible part."""

    order: tuple[str, ...] = ()
    """Ids of claims to be told first among their kind."""
    text: str = ""
    """The Interpretation; empty: there is none."""
    by: str = ""
    """The model that wrote it."""
    left_out: str = ""
    """Why there is no Interpretation although a model was asked; empty when none was asked, or when there is one."""


def synthesis_of(records: Records, claims: Sequence[Claim]) -> Synthesis:
    """The newest synthesis in the records; an empty one when no model was asked."""
    found = [d for d in records.decisions if d.what == DECISION]
    if not found:
        return Synthesis()
    evidence = found[-1].evidence
    known = [c.id for c in claims]
    order = tuple(dict.fromkeys(c for c in _texts(evidence.get("order")) if c in known))
    text, by = str(evidence.get("text") or ""), str(evidence.get("by") or "")
    left_out = str(evidence.get("left_out") or "")
    names = reserved_names(records.campaign.goal_spec, [b.name for b in records.blueprints])
    faults = interpretation_faults(text, known, names)
    if faults:
        return Synthesis(order, "", by, f"it broke the rules for prose: {faults[0]}")
    if not text and not left_out:
        left_out = "the model wrote no remark"
    return Synthesis(order, text, by, left_out if not text else "")


def in_order(claims: Sequence[Claim], order: Sequence[str]) -> list[Claim]:
    """All claims: first those named by ``order``, then the others as they were."""
    place = {claim_id: n for n, claim_id in enumerate(order)}
    return sorted(claims, key=lambda c: place.get(c.id, len(place)))


def _texts(value: Any) -> list[str]:
    return [str(x) for x in value] if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON
