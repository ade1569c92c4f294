"""The trace of the whole campaign, and every run."""

from __future__ import annotations

from a3r.report.blocks import Block, Code, Cut, Heading, Paragraph, Table
from a3r.report.gains import RunGain
from a3r.report.numbers import plain, signed, utc
from a3r.report.sections.stages import outcome
from a3r.report.study import Study
from a3r.report.tables import run_rows
from a3r.report.trace import trace


def chronicle(study: Study) -> list[Block]:
    """Who did what when, with which outcome."""
    lines = trace(study.records, study.gains)
    return [
        Heading(2, "Trace"),
        Table(
            ("time (UTC)", "actor", "artifact", "outcome"),
            tuple((utc(x.at), Cut(x.actor), Cut(x.artifact), Cut(x.outcome, 400)) for x in lines),
        ),
        Paragraph(
            (
                f"All raw events ({len(study.records.events)}) are in ",
                Code("records/events.jsonl"),
                ".",
            )
        ),
    ]


RUN_COLUMNS = (
    "run",
    "stage",
    "seed planned",
    "seed proven",
    "outcome",
    "attempts",
    "version 0",
    "final",
    "gain",
    "missing items",
    "steps",
    "minutes",
)


def runs(study: Study) -> list[Block]:
    """One row a planned run."""
    ids = [g.run_id for g in study.gains]
    rows = tuple(
        (
            Cut(r["name"]),
            str(r["stage"]),
            str(r["seed"]),
            Cut(str(r["proven"])),
            outcome(study, run_id, r["state"]),
            str(r["attempts"]),
            plain(r["initial"]),
            plain(r["final"]),
            signed(r["gain"]),
            str(r["missing"]),
            str(r["steps"]),
            r["minutes"],
        )
        for run_id, r in zip(ids, run_rows(study.records, study.gains), strict=True)
    )
    return [Heading(2, "Runs"), Table(RUN_COLUMNS, rows), Paragraph(seeds_sentence(study.gains))]


def seeds_sentence(gains: list[RunGain]) -> str:
    """How many results come from a run whose own record states the planned seed."""
    used = sum(g.gain is not None for g in gains)
    refused = sum("own record" in g.excluded for g in gains)
    return (
        f"Seeds are proven from the runs' own records: {used} results carry the planned seed; "
        f"{refused} runs were left out because their record says another or none."
    )
