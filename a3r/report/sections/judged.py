"""What the referee says of the runs: who is excluded, who is suspect, by which rule, with which numbers."""

from __future__ import annotations

from a3r.report.blocks import Block, Code, Cut, Heading, Paragraph, Table
from a3r.report.referee import Grade, RefereeVerdict
from a3r.report.study import Study


def judged(study: Study) -> list[Block]:
    """Counts, then a row a finding; rules that could not look are named."""
    verdicts = study.verdicts
    out: list[Block] = [Heading(2, "Referee")]
    if not verdicts:
        return [*out, Paragraph("No run has evidence to judge.")]
    counts = {g: sum(v.grade is g for v in verdicts.values()) for g in Grade}
    out.append(
        Paragraph(
            f"Of {len(verdicts)} runs with evidence {counts[Grade.VALID]} are valid, {counts[Grade.SUSPECT]} suspect and "
            f"{counts[Grade.INVALID]} invalid. An invalid run is left out of the results, by a rule about how it was made; "
            "a suspect one stays in and is named here, because leaving runs out for how they came out would bend every mean."
        )
    )
    rows = [_row(study, v, n) for v in verdicts.values() for n in range(len(v.findings))]
    if rows:
        out.append(Table(("run", "grade", "rule", "what was seen"), tuple(rows)))
    blind = _unchecked(verdicts)
    if blind:
        header = ("why a rule could not look", "rules", "runs")
        out.append(Table(header, blind))
    return out


def _row(study: Study, verdict: RefereeVerdict, number: int) -> tuple[Cut | Code | str, ...]:
    found = verdict.findings[number]
    label = study.run_label(study.records.run(verdict.run_id))
    return (Cut(label), str(found.grade), Code(found.rule), Cut(found.text, 400))


def _unchecked(verdicts: dict[str, RefereeVerdict]) -> tuple[tuple[Cut | str, ...], ...]:
    """Rules that were blind for the same reason in as many runs share a row."""
    runs: dict[tuple[str, str], int] = {}
    for verdict in verdicts.values():
        for rule, why in verdict.unchecked.items():
            runs[why, rule] = runs.get((why, rule), 0) + 1
    rows: dict[tuple[str, int], list[str]] = {}
    for (why, rule), count in sorted(runs.items()):
        rows.setdefault((why, count), []).append(rule)
    return tuple(
        (Cut(why, 400), Cut(", ".join(rules), 400), str(count))
        for (why, count), rules in rows.items()
    )
