"""The first section: what was found, and what the reader may rely on."""

from __future__ import annotations

from a3r.core.types import ReviewMode
from a3r.report.blocks import Block, Bullets, Code, Cut, Heading, Line, Paragraph, Strong
from a3r.report.claims import Claim
from a3r.report.coverage import PRIMARY
from a3r.report.no_result import no_result
from a3r.report.records import Records
from a3r.report.study import Study
from a3r.report.synthesis import in_order


def answer(study: Study) -> list[Block]:
    """Primary claims, how the campaign ended, who reviewed, what ``verify`` does."""
    records = study.records
    out: list[Block] = [
        Heading(2, "Answer"),
        Bullets(tuple(told(c) for c in _front(study))),
    ]
    campaign = records.campaign
    if campaign.ending != "concluded":
        why = (": ", Cut(campaign.failure, 600)) if campaign.failure else ()
        out.append(
            Paragraph(
                (
                    Strong("This campaign did not reach its own conclusion"),
                    f" (it is {campaign.ending}",
                    *why,
                    "); what follows covers what was run.",
                )
            )
        )
    out += _without_result(records)
    out.append(Paragraph(review_sentence(records)))
    if study.reused:
        out.append(Paragraph(reuse_sentence(study)))
    out.append(
        Paragraph(
            (
                "Every number here is computed from the files in ",
                Code("records/"),
                "; ",
                Code("a3r campaign verify ."),
                " recomputes all of them.",
            )
        )
    )
    return out


def _without_result(records: Records) -> list[Block]:
    found = no_result(records)
    if found is None:
        return []
    often = (f". Most often ({found.count} of {found.failed}): ", Cut(found.reason, 600))
    gave_up = [x for why in found.repairs for x in (". The client was not mended: ", Cut(why, 600))]
    reason = often if found.reason else ()
    return [Paragraph((Strong(found.counted()), *reason, *gave_up, "."))]


def told(claim: Claim) -> Line:
    """A claim's sentence with its id."""
    return f"{claim.text} ({claim.id})"


def _front(study: Study) -> list[Claim]:
    """Every primary claim that was asked for, then the denominators: no order given from outside removes one."""
    asked = [c for c in study.claims if c.kind in PRIMARY and c.values.get("status") != "not_asked"]
    counted = [c for c in study.claims if c.kind == "denominators"]
    return [*in_order(asked, study.synthesis.order), *counted]


def review_sentence(records: Records) -> str:
    """Who reviewed what before dispatch; nothing is implied that no verdict shows."""
    if records.campaign.review_mode == ReviewMode.NONE:
        return "No human reviewed these blueprints before dispatch."
    approved = sum(b.review == "approved" for b in records.blueprints)
    return (
        f"{approved} of {len(records.blueprints)} blueprints carry a standing approval of exactly this version "
        f"(review mode {records.campaign.review_mode})."
    )


def reuse_sentence(study: Study) -> str:
    """How many runs were taken over from earlier campaigns."""
    return (
        f"{len(study.reused)} of {len(study.gains)} planned runs were not run here: a person accepted the result of the same "
        "cell and seed of an earlier campaign. They are marked, and no confirmatory stage holds one."
    )
