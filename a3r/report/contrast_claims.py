"""Claims about a best level, a comparison, an interaction. Code writes every word; see ``claim``."""

from __future__ import annotations

from a3r.report.claim import Claim, made, measured, place, subject_at
from a3r.report.contrast_results import (
    ConditionContrasts,
    Contrast,
    ContrastAnalysis,
    Interaction,
    Judged,
    Shown,
)
from a3r.report.numbers import interval, listed, p_phrase, percent, scalar_text, signed
from a3r.report.question import Question
from a3r.report.records import Scalar
from a3r.report.results import Cell, Status

_STATUSES = {
    Shown.HIGHER: "shown",
    Shown.LOWER: "shown",
    Shown.EQUIVALENT: "equivalent",
    Shown.NOT_SHOWN: "not_shown",
    Shown.NOT_REPLICATED: "unresolved",
    Shown.MEASURED: "not_asked",
}


def contrast_claims(analysis: ContrastAnalysis, question: Question) -> list[Claim]:
    """The answer first, then differences between levels, then every cell with fresh seeds."""
    out: list[Claim] = []
    if analysis.kind == "best":
        out += [_best(found, question) for found in analysis.conditions]
    elif analysis.kind == "interaction":
        out += _interactions(analysis, question)
    for found in analysis.conditions:
        out += [_difference(c, found, question) for c in found.contrasts]
        if analysis.kind == "comparison" and not found.contrasts:
            out.append(_no_comparison(found, question))
    for found in analysis.conditions:
        out += [_cell(c, question) for c in found.cells if c.fresh_planned]
    # The answer to a comparison are its differences, so they come first there anyway.
    return out


def quantity(question: Question) -> str:
    """What is compared, in words."""
    return "final held-out reward" if question.measure == "final" else "gain in held-out reward"


# --- best ------------------------------------------------------------------------------------------------------


def _best(found: ConditionContrasts, question: Question) -> Claim:
    leader = found.cell(found.leader)
    values = {
        "status": found.status,
        "leader": found.leader,
        "beats": [x for x, seen in _against(found).items() if seen is Shown.HIGHER],
        "equivalent": [x for x, seen in _against(found).items() if seen is Shown.EQUIVALENT],
        "aside": list(found.aside),
        "untested": list(found.untested),
    }
    cells = [c for c in found.cells if c.fresh_planned or c.level == found.leader]
    text = place(found.condition, question.across) + _best_text(found, leader, question)
    subject = subject_at(f"best {question.factor}", found.condition, question.across)
    return made("best", subject, values, cells, text, question)


def _best_text(found: ConditionContrasts, leader: Cell | None, question: Question) -> str:
    factor = question.factor
    if leader is None:
        return f"the best {factor} is not resolved: {found.reason}"
    name = scalar_text(leader.level)
    if found.status is Status.UNRESOLVED:
        return f"the best {factor} is not resolved; {name} leads so far, but {found.reason}"
    if found.status is Status.NOT_CONFIRMED:
        return f"no best {factor} is shown: {found.reason}, though {name} leads on fresh seeds: {measured(leader, question)}"
    if found.status is Status.TIED:
        return (
            f"{found.reason} ({_margin(question)}), so no {factor} is best by more than that; at {name}, "
            f"{measured(leader, question)}{_left_out(found, question)}"
        )
    rivals = listed([scalar_text(x) for x in _against(found)])
    return (
        f"the best {factor} of those repeated on fresh seeds is {name}: it is shown above {rivals}, and there, "
        f"{measured(leader, question)}{_left_out(found, question)}"
    )


def _left_out(found: ConditionContrasts, question: Question) -> str:
    """What the answer does not cover: levels put aside or never run, and an edge of the grid."""
    parts: list[str] = []
    if found.aside:
        parts.append(f"{_named(found.aside)} fell behind in the first look and got no fresh seeds")
    if found.untested:
        parts.append(f"{_named(found.untested)} has no result")
    if question.numeric and found.leader in (question.levels[0], question.levels[-1]):
        edge = "lowest" if found.leader == question.levels[0] else "highest"
        parts.append(f"it is the {edge} level of the grid, so a better one may lie beyond")
    return "".join(f"; {part}" for part in parts)


def _against(found: ConditionContrasts) -> dict[Scalar, Shown]:
    """Rival -> verdict as seen from the leader."""
    turned = {Shown.HIGHER: Shown.LOWER, Shown.LOWER: Shown.HIGHER}
    out: dict[Scalar, Shown] = {}
    for c in found.contrasts:
        if c.level == found.leader:
            out[c.against] = c.verdict
        elif c.against == found.leader:
            out[c.level] = turned.get(c.verdict, c.verdict)
    return out


# --- differences -----------------------------------------------------------------------------------------------


def _difference(found: Contrast, at: ConditionContrasts, question: Question) -> Claim:
    asked = question.kind == "comparison"
    factor = question.factor
    pair = scalar_text(found.level), scalar_text(found.against)
    told = _relation(found, *pair, quantity(question), question)
    text = f"{place(found.condition, question.across)}of {factor}, {told}"
    subject = subject_at(
        f"{factor} {scalar_text(found.level)} against {scalar_text(found.against)}",
        found.condition,
        question.across,
    )
    cells = [c for c in (at.cell(found.level), at.cell(found.against)) if c is not None]
    kind = "comparison" if asked else "difference"
    return made(kind, subject, _values(found), cells, text, question)


def _no_comparison(found: ConditionContrasts, question: Question) -> Claim:
    text = (
        f"{place(found.condition, question.across)}nothing is compared with {question.factor} "
        f"{scalar_text(question.baseline)}: {found.reason}"
    )
    subject = subject_at(
        f"{question.factor} against {scalar_text(question.baseline)}",
        found.condition,
        question.across,
    )
    return made("comparison", subject, {"status": found.status}, list(found.cells), text, question)


def _relation(found: Judged, first: str, second: str, what: str, question: Question) -> str:
    """``first is shown above second: ...``, with size, interval, n and the p of what is said."""
    if found.verdict is Shown.NOT_REPLICATED:
        look = (
            ""
            if found.first_look is None
            else f"; in the first look the difference was {signed(found.first_look)} (exploratory)"
        )
        return f"{first} and {second} share {len(found.seeds)} fresh seeds with a result, too few to compare them{look}"
    size = (
        f"the {what} at {first} minus that at {second} is {interval(found.difference)} "
        f"(n = {len(found.seeds)} seeds in pairs, {percent(question.confidence)} t interval"
    )
    if found.verdict is Shown.MEASURED:
        return f"{size}; descriptive, not corrected, not part of the verdict)"
    say = {
        Shown.HIGHER: (f"{first} is shown above {second}", found.p_higher_adjusted),
        Shown.LOWER: (f"{first} is shown below {second}", found.p_lower_adjusted),
        Shown.EQUIVALENT: (
            f"{first} and {second} are equivalent ({_margin(question)})",
            found.p_equivalent_adjusted,
        ),
    }
    words, p = say.get(
        found.verdict,
        (f"{first} is not shown to differ from {second}, nor to equal it", _smaller(found)),
    )
    small = f", by less than what matters ({_margin(question)})" if _small(found) else ""
    return f"{words}{small}: {size}; Holm-adjusted {p_phrase(p)}){_alone(found)}"


def _small(found: Judged) -> bool:
    return found.negligible and found.verdict in (Shown.HIGHER, Shown.LOWER)


def _smaller(found: Judged) -> float | None:
    both = [p for p in (found.p_higher_adjusted, found.p_lower_adjusted) if p is not None]
    return min(both) if both else None


def _alone(found: Judged) -> str:
    if not found.alone:
        return ""
    seeds = listed([str(s) for s in found.alone])
    return (
        f"; seed {seeds} has no result in one of them and is left out"
        if len(found.alone) == 1
        else (f"; seeds {seeds} have no result in one of them and are left out")
    )


def _margin(question: Question) -> str:
    return (
        "no margin" if question.smallest_effect is None else f"within {question.smallest_effect:g}"
    )


def _values(found: Judged) -> dict[str, object]:
    return {"status": _STATUSES[found.verdict], **found.model_dump(mode="json")}


# --- interaction -----------------------------------------------------------------------------------------------


def _interactions(analysis: ContrastAnalysis, question: Question) -> list[Claim]:
    tried = [f for f in analysis.interactions if f.contest is not None]
    if not tried:
        text = f"whether {question.across} changes what {question.factor} does is not resolved: {analysis.reason}"
        subject = f"{question.across} on {question.factor}"
        return [made("interaction", subject, {"status": analysis.status}, [], text, question)]
    return [_interaction(f, analysis, question) for f in tried]


def _interaction(found: Interaction, analysis: ContrastAnalysis, question: Question) -> Claim:
    effect = f"{question.factor} {scalar_text(found.level)} instead of {scalar_text(found.against)}"
    here = f"{question.across} {scalar_text(found.condition)}"
    there = f"{question.across} {scalar_text(found.other)}"
    verdict = {
        Shown.HIGHER: "is shown to be higher at",
        Shown.LOWER: "is shown to be lower at",
        Shown.EQUIVALENT: "is shown to be the same, but for what does not matter, at",
        Shown.NOT_SHOWN: "is not shown to differ, nor to be the same, at",
        Shown.NOT_REPLICATED: "is not resolved, for fewer than two seeds are fresh in all four cells, at",
        Shown.MEASURED: "is described at",
    }[found.verdict]
    ps = {Shown.HIGHER: found.p_higher_adjusted, Shown.LOWER: found.p_lower_adjusted, Shown.EQUIVALENT: found.p_equivalent_adjusted}  # fmt: skip
    link = "and" if found.verdict in (Shown.EQUIVALENT, Shown.NOT_SHOWN) else "than at"
    text = f"the effect of {effect} on the {quantity(question)} {verdict} {here} {link} {there}"
    if found.difference is not None and found.verdict is not Shown.NOT_REPLICATED:
        text += (
            f": the difference of the two effects is {interval(found.difference)} (n = {len(found.seeds)} seeds in all four "
            f"cells, {percent(question.confidence)} t interval; Holm-adjusted {p_phrase(ps.get(found.verdict, _smaller(found)))})"
            f"{_alone(found)}"
        )
    cells = [
        c
        for a in analysis.conditions
        for c in a.cells
        if c.condition in (found.condition, found.other) and c.level in (found.level, found.against)
    ]
    subject = f"{effect}, {here} against {scalar_text(found.other)}"
    return made("interaction", subject, _values(found), cells, text, question)


# --- cells -----------------------------------------------------------------------------------------------------


def _cell(cell: Cell, question: Question) -> Claim:
    where = (
        "" if question.across is None else f"{question.across} {scalar_text(cell.condition)} and "
    )
    text = f"at {where}{question.factor} {scalar_text(cell.level)}, {measured(cell, question)}"
    values = cell.model_dump(mode="json", exclude={"gains", "condition", "level"})
    subject = subject_at(
        f"{question.factor} {scalar_text(cell.level)}", cell.condition, question.across
    )
    return made("cell", subject, values, [cell], text, question)


def _named(levels: tuple[Scalar, ...]) -> str:
    return listed([scalar_text(x) for x in levels])
