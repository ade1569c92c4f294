"""What was done otherwise than planned, with the diffs of repaired clients, and who approved what."""

from __future__ import annotations

from a3r.report.blocks import Block, Code, Cut, Heading, Listing, Paragraph, Table
from a3r.report.numbers import utc
from a3r.report.records import RevisionRecord
from a3r.report.sections.answer import review_sentence
from a3r.report.study import Study
from a3r.report.tables import deviation_rows, review_rows


def deviations(study: Study) -> list[Block]:
    """Every departure in order of time; each revision of a client with its diff."""
    rows = deviation_rows(study.records)
    out: list[Block] = [Heading(2, "Deviations")]
    if rows:
        table = tuple(
            (utc(r["at"]), Cut(r["subject"]), Cut(r["what"]), Cut(r["detail"], 400)) for r in rows
        )
        out.append(Table(("time (UTC)", "subject", "what", "detail"), table))
    else:
        out.append(Paragraph("None was recorded."))
    for found in study.records.revisions:
        out += _revision(study, found)
    return out


def _revision(study: Study, found: RevisionRecord) -> list[Block]:
    names = {b.id: b.name for b in study.records.blueprints}
    name = names.get(found.blueprint_id, found.blueprint_id)
    ran = sum(
        a.revision == found.ordinal
        for r in study.records.runs
        if r.blueprint_id == found.blueprint_id
        for a in r.attempts
    )
    return [
        Heading(3, ("Revision ", str(found.ordinal), " of ", Cut(name))),
        Paragraph(
            (
                f"{utc(found.at)} UTC, ",
                Cut(found.state),
                *((" by ", Cut(found.by)) if found.by else ()),
                f", run by {ran} attempts; client tree ",
                Code(found.tree_hash[:12]),
                ". The evaluator is not part of a client. Reason: ",
                Cut(found.reason, 600),
            )
        ),
        Listing(found.diff, "diff", f"The diff of revision {found.ordinal}"),
    ]


def review(study: Study) -> list[Block]:
    """Mode and verdicts."""
    rows = review_rows(study.records)
    mode = Code(study.records.campaign.review_mode)
    out: list[Block] = [
        Heading(2, "Review"),
        Paragraph(("Mode: ", mode, ". ", review_sentence(study.records))),
    ]
    if not rows:
        return out
    table = tuple(
        (
            utc(r["at"]),
            Cut(r["by"]),
            Cut(r["blueprint"]),
            Code(r["hash"]),
            Cut(r["verdict"]),
            Cut(r["note"]),
        )
        for r in rows
    )
    header = ("time (UTC)", "by", "blueprint", "content hash", "verdict", "note")
    return [*out, Table(header, table)]
