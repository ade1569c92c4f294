"""The Interpretation section: remarks of a language model about claims, each framed by code and guarded by ``prose_guard``.

A remark says what kind it is and which claims it is about; code writes the frame (``Possible explanation (c1, c3): ...``), so that
no remark reads as a result. ``interpretation_faults`` reads the text back: ``a3r campaign verify`` applies the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from a3r.report.prose_guard import hedge_fault, prose_faults

RemarkKind = Literal["explanation", "caveat", "open_question", "next_step"]
LEADS: dict[RemarkKind, str] = {
    "explanation": "Possible explanation",
    "caveat": "Caveat",
    "open_question": "Open question",
    "next_step": "Possible next step",
}
MAX_REMARKS = 12
_LINE = re.compile(
    rf"(?P<lead>{'|'.join(LEADS.values())}) \((?P<about>c\d+(?:, c\d+)*)\): (?P<text>.+)"
)
_KINDS: dict[str, RemarkKind] = {lead: kind for kind, lead in LEADS.items()}


class Remark(BaseModel):
    """One remark."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: RemarkKind
    about: tuple[str, ...] = Field(min_length=1, max_length=20)
    """Ids of claims."""
    text: str
    """At most 400 characters, as ``prose_guard`` allows; explanations are hedged."""


def interpretation_text(remarks: Iterable[Remark]) -> str:
    """The section's text, one remark a line; empty without remarks."""
    return "\n".join(
        f"{LEADS[r.kind]} ({', '.join(r.about)}): {' '.join(r.text.split())}" for r in remarks
    )


def remark_faults(remark: Remark, claim_ids: Collection[str], names: Iterable[str]) -> list[str]:
    """Why the remark may not stand in the report; empty when it may."""
    found = [f"there is no claim {c!r}" for c in remark.about if c not in claim_ids]
    found += prose_faults(remark.text, names)
    if remark.kind == "explanation" and (fault := hedge_fault(remark.text)):
        found.append(fault)
    return found


def interpretation_faults(text: str, claim_ids: Collection[str], names: Iterable[str]) -> list[str]:
    """Why this text is no interpretation that code wrote from admissible remarks; empty when it is, or when it is empty."""
    lines, names = text.splitlines(), tuple(names)
    if len(lines) > MAX_REMARKS:
        return [f"{len(lines)} remarks; at most {MAX_REMARKS} are allowed"]
    found: list[str] = []
    for number, line in enumerate(lines, start=1):
        read = _LINE.fullmatch(line)
        if read is None:
            found.append(f"remark {number} has no frame of the form 'Caveat (c1): ...'")
            continue
        about = tuple(read["about"].split(", "))
        remark = Remark(kind=_KINDS[read["lead"]], about=about, text=read["text"])
        found += [f"remark {number}: {fault}" for fault in remark_faults(remark, claim_ids, names)]
    return found
