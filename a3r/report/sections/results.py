"""Denominators, the table of cells, the figures, and every claim that is not in the answer."""

from __future__ import annotations

from a3r.report.blocks import Block, Bullets, Cut, Heading, Image, Paragraph, Table
from a3r.report.contrast_results import ContrastAnalysis, Judged
from a3r.report.coverage import PRIMARY
from a3r.report.figures import figures
from a3r.report.gains import RunGain
from a3r.report.numbers import interval, p_value, percent, scalar_text, signed
from a3r.report.records import Scalar
from a3r.report.results import Cell, MinimumAnalysis, Verdict
from a3r.report.sections.answer import told
from a3r.report.study import Study
from a3r.report.synthesis import in_order
from a3r.report.tables import stage_counts


def denominators(study: Study) -> list[Block]:
    """Planned = succeeded + failed + cancelled + not run, and why a run has no result."""
    counted = next(c for c in study.claims if c.kind == "denominators")
    rows = stage_counts(study.records, study.gains)
    keys = ("planned", "succeeded", "failed", "cancelled", "not_run", "used")
    out: list[Block] = [
        Heading(2, "Denominators"),
        Paragraph(told(counted)),
        Table(
            ("stage", "planned", "succeeded", "failed", "cancelled", "not run", "in the results"),
            tuple((Cut(r["name"]), *(str(r[k]) for k in keys)) for r in rows),
        ),
    ]
    if study.reused:
        out.append(_reused(study))
    excluded = [g for g in study.gains if g.excluded]
    if not excluded:
        return [*out, Paragraph("No run was left out.")]
    return [
        *out,
        Paragraph("Runs without a result, and why:"),
        Table(("run", "why"), tuple((Cut(run_name(g)), Cut(g.excluded)) for g in excluded)),
    ]


def run_name(gain: RunGain) -> str:
    """Blueprint's name and seed."""
    return f"{gain.blueprint} seed {gain.seed}"


def _reused(study: Study) -> Table:
    names = {run.id: study.run_label(run) for run in study.records.runs}
    return Table(
        ("reused run", "taken from"),
        tuple((Cut(names[run_id]), Cut(source)) for run_id, source in study.reused.items()),
        caption="Counted among the succeeded, though run in an earlier campaign:",
    )


def results(study: Study) -> list[Block]:
    """Cells with n and intervals, comparisons, figures, and each claim that is evidence for the answer."""
    details = [c for c in study.claims if c.kind not in PRIMARY and c.kind != "denominators"]
    out: list[Block] = [
        Heading(2, "Results"),
        cells(study),
        Paragraph(
            f"Brackets are {percent(study.analysis.confidence)} t intervals over seeds. Means over all seeds are exploratory: "
            "they chose where to look and are not corrected."
        ),
        *comparisons(study),
        *(Image(f.svg, f.data, f.title, f.caption) for f in figures(study.analysis)),
        Heading(3, "Evidence, claim by claim"),
    ]
    if not details:
        return [*out, Paragraph("No cell was replicated with fresh seeds.")]
    return [*out, Bullets(tuple(told(c) for c in in_order(details, study.synthesis.order)))]


def cells(study: Study) -> Table:
    """One row a cell with planned runs; a minimum judges each cell alone, other questions compare them."""
    analysis, least = study.analysis, signed(study.analysis.min_gain)
    what = "gain" if study.question.measure == "gain" else "final reward"
    judges = isinstance(analysis, MinimumAnalysis)
    tests = (f"adjusted p (above {least})", f"adjusted p (below {least})", "verdict")
    return Table(
        (
            study.question.across or "condition",
            analysis.factor,
            "results / planned",
            f"mean {what}, all seeds",
            "fresh results / planned",
            f"mean {what}, fresh seeds",
            *(tests if judges else ()),
        ),
        tuple(_row(c, judges=judges) for a in analysis.conditions for c in a.cells),
    )


def _row(cell: Cell, *, judges: bool) -> tuple[str | Cut, ...]:
    tests = (p_value(cell.p_adjusted), p_value(cell.p_not_adjusted), verdict_text(cell))
    return (
        _at(cell.condition),
        Cut(scalar_text(cell.level)),
        f"{len(cell.gains)} / {cell.planned}",
        interval(cell.all_seeds),
        f"{cell.fresh.n if cell.fresh else 0} / {cell.fresh_planned}",
        interval(cell.fresh),
        *(tests if judges else ()),
    )


def comparisons(study: Study) -> list[Block]:
    """Every difference between levels, and every difference of differences, that the campaign planned to test."""
    analysis = study.analysis
    if not isinstance(analysis, ContrastAnalysis):
        return []
    rows = [
        (
            _at(c.condition),
            Cut(f"{scalar_text(c.level)} minus {scalar_text(c.against)}"),
            *_tests(c),
        )
        for found in analysis.conditions
        for c in found.contrasts
    ]
    rows += [
        (
            Cut(f"{scalar_text(c.condition)} minus {scalar_text(c.other)}"),
            Cut(f"of {scalar_text(c.level)} minus {scalar_text(c.against)}"),
            *_tests(c),
        )
        for c in analysis.interactions
        if c.planned
    ]
    if not rows:
        return []
    header = (
        study.question.across or "condition",
        analysis.factor,
        "pairs / planned",
        "difference",
        "adjusted p (higher)",
        "adjusted p (lower)",
        "adjusted p (equivalent)",
        "verdict",
    )
    caption = "Differences on fresh seeds, paired by seed, in one family:"
    return [Table(header, tuple(rows), caption=caption)]


def _at(condition: Scalar) -> str | Cut:
    return "all" if condition is None else Cut(scalar_text(condition))


def _tests(found: Judged) -> tuple[str, ...]:
    return (
        f"{len(found.seeds)} / {found.planned}",
        interval(found.difference),
        p_value(found.p_higher_adjusted),
        p_value(found.p_lower_adjusted),
        p_value(found.p_equivalent_adjusted),
        str(found.verdict),
    )


def verdict_text(cell: Cell) -> str:
    """The fresh verdict, or the exploratory lean marked as such."""
    if cell.verdict is not Verdict.NOT_REPLICATED:
        return str(cell.verdict)
    if cell.lean is None:
        return "no result"
    return f"leans {'yes' if cell.lean else 'no'} (exploratory)"
