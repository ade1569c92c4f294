"""What became of each thing that the goal asked for: questions, demands, limits. Decided by rules from claims and records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from a3r.report.claims import Claim
from a3r.report.costs import Costs
from a3r.report.demand_rules import Facts, demand_told
from a3r.report.numbers import level_text, plain, scalar_text
from a3r.report.records import Records

State: TypeAlias = Literal[
    "answered", "answered in part", "not answered", "kept", "not kept", "not checked"
]
PRIMARY = frozenset({"minimum", "best", "comparison", "interaction", "shift"})
"""Kinds of claims that answer a question of the goal; the others are their evidence."""
READING = "understand the goal"
"""The decision whose evidence holds, for each key that was read from prose, the goal's own words."""
_STATES: dict[str, State] = {
    "confirmed": "answered",
    "shown": "answered",
    "tied": "answered",
    "equivalent": "answered",
    "censored_low": "answered in part",
    "censored_high": "answered in part",
    "not_shown": "not answered",
    "not_confirmed": "not answered",
    "unresolved": "not answered",
}


@dataclass(frozen=True)
class Covered:
    """One line of the goal-coverage table; texts may hold outside words."""

    asked: str
    state: State
    why: str
    claims: tuple[str, ...] = ()


def coverage(records: Records, claims: Sequence[Claim], costs: Costs) -> list[Covered]:
    """Questions first, then settings, then demands in words, then limits; in the goal's order."""
    spec = records.campaign.goal_spec
    return [
        *_questions(claims),
        *_settings(records, spec),
        *_demands(records, spec, costs),
        *_limits(records, spec, costs),
    ]


def _questions(claims: Sequence[Claim]) -> list[Covered]:
    out: list[Covered] = []
    for claim in claims:
        status = str(claim.values.get("status") or "")
        if claim.kind in PRIMARY and status and status != "not_asked":
            state = _STATES.get(status, "answered")
            out.append(Covered(_asked(claim), state, status.replace("_", " "), (claim.id,)))
    return out


def _asked(claim: Claim) -> str:
    named = claim.kind == "shift" or claim.subject.startswith(claim.kind)
    return claim.subject if named else f"{claim.kind}: {claim.subject}"


def _settings(records: Records, spec: dict[str, Any]) -> list[Covered]:
    """A fixed setting is kept when every blueprint carries it as asked."""
    wanted: dict[str, Any] = dict(spec.get("settings") or {})
    out: list[Covered] = []
    for name, value in wanted.items():
        asked = f"setting {name} = {scalar_text(value) if not isinstance(value, dict | list) else value}"
        other = [b.name for b in records.blueprints if not _same(b.document, name, value)]
        if not records.blueprints:
            out.append(Covered(asked, "not checked", "no blueprint was made"))
        elif other:
            out.append(Covered(asked, "not kept", f"blueprint {other[0]} has another value"))
        else:
            why = f"in all {len(records.blueprints)} blueprints, before anything ran"
            out.append(Covered(asked, "kept", why))
    return out


def _same(document: dict[str, Any], name: str, value: Any) -> bool:
    fixed: dict[str, Any] = document.get("fixed") or {}
    factors: dict[str, Any] = document.get("factors") or {}
    return fixed.get(name, factors.get(name, value)) == value


def _demands(records: Records, spec: dict[str, Any], costs: Costs) -> list[Covered]:
    """A demand of which a rule reads every word is held against what was run; of any other it is said that a reader must.

    A demand that a goal in prose was read from names its keys; that this is all it says is never taken for granted.
    """
    sources: list[dict[str, Any]] = [
        s for d in records.decisions if d.what == READING for s in d.evidence.get("sources") or ()
    ]
    out: list[Covered] = []
    facts = Facts(records, spec, costs)
    for text in map(str, spec.get("constraints") or ()):
        told = demand_told(text, facts)
        if told is not None and told.kept is not None:
            out.append(Covered(text, "kept" if told.kept else "not kept", told.why))
            continue
        keys = [str(s["key"]) for s in sources if _holds(text, str(s["quote"]))]
        why = (
            f"read as {', '.join(keys)}; whether that is all it says is for a reader"
            if keys
            else "a demand in words: no rule reads it; compare it with the blueprints"
        )
        out.append(Covered(text, "not checked", why))
    return out


def _holds(text: str, quote: str) -> bool:
    """Whether the quote stands in the text, white space and letter case aside."""
    wanted = "".join(quote.split()).lower()
    return bool(wanted) and wanted in "".join(text.split()).lower()


def _limits(records: Records, spec: dict[str, Any], costs: Costs) -> list[Covered]:
    budget: dict[str, Any] = dict(spec.get("budget") or {})
    planned = sum(len(b.seeds) for b in records.blueprints)
    used: dict[str, tuple[str, float | None]] = {
        "max_stages": ("stages", len(records.stages)),
        "max_runs": ("planned runs", planned),
        "wall_clock_min": ("minutes of wall clock", costs.wall_min),
        "gpu_hours": ("GPU-hours", costs.gpu_hours),
        "llm_usd": ("USD for the language model", costs.llm_usd),
        "llm_tokens": ("tokens of the language model", costs.llm_tokens),
        "llm_calls": ("calls of the language model", costs.llm_calls),
    }
    out: list[Covered] = []
    for key, limit in budget.items():
        if limit is None or key not in used:
            continue
        what, spent = used[key]
        asked = f"at most {level_text(limit)} {what}"
        out.append(_against(key, asked, spent, float(limit)))
    return out


def _against(key: str, asked: str, spent: float | None, limit: float) -> Covered:
    if spent is None:
        return Covered(asked, "not checked", "not every attempt reported what it used")
    text = (
        level_text(spent)
        if float(spent).is_integer()
        else plain(spent, 4 if key == "llm_usd" else 2)
    )
    if spent <= limit:
        return Covered(asked, "kept", f"{text} used")
    note = ""
    if key == "wall_clock_min":
        note = "; time in which the campaign waited for a person counts here, not in the budget, and what had begun was let end"
    return Covered(asked, "not kept", f"{text} used{note}")
