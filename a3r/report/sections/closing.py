"""What it ran on, and how to check it and run it again."""

from __future__ import annotations

from typing import Any

from a3r.core.types import ReviewMode
from a3r.report.blocks import Block, Bullets, Code, Cut, Heading, Listing, Paragraph, Table
from a3r.report.study import Study
from a3r.report.tables import environment_rows


def environment(study: Study) -> list[Block]:
    """Software and hosts."""
    rows = environment_rows(study.records)
    if not rows:
        return [Heading(2, "Environment"), Paragraph("Not recorded.")]
    return [
        Heading(2, "Environment"),
        Bullets(tuple((Cut(name), ": ", Cut(value, 600)) for name, value in rows)),
    ]


def reproduce(study: Study) -> list[Block]:
    """Commands for this folder, and which client and model each cell ran."""
    campaign = study.records.campaign
    mode = campaign.review_mode if campaign.review_mode in set(ReviewMode) else ReviewMode.STAGE
    version = str(dict(campaign.environment.get("software") or {}).get("a3r", ""))
    install = (
        f"pip install 'a3r[campaign]=={version}'" if version else "pip install 'a3r[campaign]'"
    )
    lines = (
        (install, "the software that this report names"),
        ("a3r campaign verify .", "in this folder: recomputes every number"),
        ("a3r campaign check goal.md", "what the goal asks and what it costs"),
        (f"a3r campaign start goal.md --review {mode}", "runs the study again"),
    )
    width = max(len(command) for command, _ in lines)
    return [
        Heading(2, "Reproduce and verify"),
        Listing("\n".join(f"{command:<{width}}  # {why}" for command, why in lines), "sh"),
        *_inputs(study),
        Paragraph(
            (
                "In ",
                Code("records/items.csv"),
                " a round is a position in ",
                Code("evals.json"),
                ", an item a position in ",
                Code("items.json"),
                " (from 0), and ",
                Code("="),
                " the round's own policy version; an empty reward is missing. ",
                Code("claims.json"),
                " holds each claim with its values and the runs that it was computed from; ",
                Code("manifest.json"),
                " holds the sha256 of every file.",
            )
        ),
    ]


def _inputs(study: Study) -> list[Block]:
    """What must be the same for the same cells: hashes of the client, the evaluator and the weights."""
    rows: dict[tuple[str, ...], None] = {}
    for found in study.records.blueprints:
        body = found.document
        hashes = (
            _first(body, "clients").get("tree_hash"),
            _part(body, "evaluator").get("source_hash"),
            _part(body, "evaluator").get("item_set_hash"),
            _first(body, "servers").get("model_fingerprint"),
        )
        rows[(found.cell_hash, *(str(h or "") for h in hashes))] = None
    if not rows:
        return []
    header = ("cell", "client tree", "scorer", "held-out items", "base weights")
    table = tuple(tuple(Code(h[:12]) if h else "n/a" for h in row) for row in rows)
    return [Table(header, table, caption="What a run of each cell must start from, as hashes:")]


def _first(body: dict[str, Any], name: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = list(body.get(name) or ())
    return parts[0] if parts else {}


def _part(body: dict[str, Any], name: str) -> dict[str, Any]:
    part: dict[str, Any] = body.get(name) or {}
    return part
