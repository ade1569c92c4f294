"""The report's two faces from records: pure functions, byte-stable, without clock, locale or environment."""

from __future__ import annotations

from collections.abc import Mapping

from a3r.report.claims import Claim
from a3r.report.faces import markdown, page
from a3r.report.records import Records
from a3r.report.sections.contents import document
from a3r.report.study import Study


def claims_of(records: Records) -> list[Claim]:
    """Every claim of the campaign."""
    return Study(records).claims


def render(records: Records) -> str:
    """``report.md``."""
    return markdown(document(Study(records)))


def render_page(records: Records, drawings: Mapping[str, bytes]) -> str:
    """``report.html``, the same document with the figures set in; ``drawings``: path in the folder -> SVG."""
    return page(document(Study(records)), drawings)
