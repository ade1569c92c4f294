"""What the study does not show, said by rules: which sentence stands depends on the analysis alone."""

from __future__ import annotations

from a3r.report.analysis import Analysis
from a3r.report.contrast_results import ContrastAnalysis
from a3r.report.family import share
from a3r.report.numbers import level_text, listed, scalar_text, signed
from a3r.report.question import Question
from a3r.report.records import Records, Scalar
from a3r.report.results import ConditionAnalysis, MinimumAnalysis, Shift, Status, Verdict
from a3r.stats.intervals import pooled_sd
from a3r.stats.tests import smallest_resolvable_gain


def limits(records: Records, analysis: Analysis, question: Question) -> list[str]:
    """Sentences in a fixed order; whoever shows them escapes outside text."""
    spec = records.campaign.goal_spec
    out = [
        f"One task ({spec.get('task', 'n/a')}), one model ({spec.get('model', 'n/a')}) and one set of fixed settings were studied; nothing is shown for others.",
        "All runs are evaluated on the same held-out items, so intervals cover the spread between seeds, not between sets of items.",
    ]
    if isinstance(analysis, MinimumAnalysis):
        out += _of_minimum(analysis, question)
    else:
        out += _of_contrasts(analysis)
    camps = [c for a in analysis.conditions for c in a.cells if c.camps]
    out += [
        f"The seeds of {analysis.factor} {scalar_text(c.level)}{_where(analysis, c.condition)} fall into two camps ({c.camps}): intervals of the mean do not describe such a cell."
        for c in camps
    ]
    return out


def _of_minimum(analysis: MinimumAnalysis, question: Question) -> list[str]:
    out = [
        "Not shown to train does not mean shown not to train: with few seeds a small gain stays unseen.",
        _resolution(analysis, question),
    ]
    for found in analysis.conditions:
        out.extend(_condition(found, analysis))
    if analysis.shift.status is Shift.NOT_SHOWN:
        out.append("That no shift of the minimum is shown does not show that there is none.")
    return out


def _of_contrasts(analysis: ContrastAnalysis) -> list[str]:
    out = [
        "Not shown to differ does not mean shown to be equal: with few seeds a small difference stays unseen."
    ]
    if analysis.smallest_effect is None:
        out.append("The goal names no smallest effect that matters, so equality was not tested.")
    if analysis.kind == "interaction" and analysis.status in (
        Status.UNRESOLVED,
        Status.NOT_CONFIRMED,
    ):
        out.append(f"The answer is open: {analysis.reason}.")
    for found in analysis.conditions:
        where = _where(analysis, found.condition)
        if analysis.kind != "interaction" and found.status in (
            Status.UNRESOLVED,
            Status.NOT_CONFIRMED,
        ):
            out.append(f"The answer{where} is open: {found.reason}.")
        if found.aside:
            levels = listed([scalar_text(x) for x in found.aside])
            out.append(
                f"{analysis.factor} {levels}{where} fell behind in the first look and got no fresh seeds: nothing is confirmed about it."
            )
        if found.untested:
            levels = listed([scalar_text(x) for x in found.untested])
            out.append(f"{analysis.factor} {levels}{where} has no result.")
    return out


def _where(analysis: Analysis, condition: Scalar) -> str:
    return f" at {analysis.across} {scalar_text(condition)}" if analysis.across else ""


def _resolution(analysis: MinimumAnalysis, question: Question) -> str:
    cells = [c for a in analysis.conditions for c in a.cells if c.replicated]
    if not cells or analysis.family == 0:
        return "No cell was replicated, so nothing is confirmed."
    sd = pooled_sd([[g.gain for g in c.gains if g.fresh] for c in cells])
    n = min(c.fresh.n for c in cells if c.fresh)
    smallest = smallest_resolvable_gain(sd, n, question.alpha * share(1), analysis.family)
    if smallest is None:
        return "With these seeds no gain can be confirmed."
    return (
        f"With {n} fresh seeds a cell, {analysis.family} tests and the spread seen (pooled SD {sd:.3f}), a mean gain below about "
        f"{signed(analysis.min_gain + smallest)} can not be expected to be confirmed."
    )


def _condition(found: ConditionAnalysis, analysis: MinimumAnalysis) -> list[str]:
    where = _where(analysis, found.condition)
    out: list[str] = []
    if found.status is Status.CONFIRMED and found.below_verdict is not Verdict.SHOWN_NOT:
        below = level_text(found.below) if found.below is not None else "n/a"
        out.append(
            f"The minimum{where} is the smallest level that is shown to train; level {below} is not shown to fail, so the true minimum may be lower."
        )
    if found.status in (Status.UNRESOLVED, Status.NOT_CONFIRMED):
        out.append(f"The minimum{where} is open: {found.reason}.")
    if found.status in (Status.CENSORED_LOW, Status.CENSORED_HIGH):
        out.append(
            f"The minimum{where} lies at an edge of the grid and is censored: {found.reason}."
        )
    if not found.monotone:
        out.append(
            f"Results{where} are not monotone in {analysis.factor}: a level says yes while a higher one says no."
        )
    return out
