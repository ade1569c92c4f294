"""The two faces of a document: Markdown and self-contained HTML, by Jinja2 templates that only lay out blocks.

Byte-stable: no clock, no locale, no environment. Outside text is escaped here and nowhere else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from a3r.report.blocks import Code, Cut, Document, Line, Link, Span, Strong, spans
from a3r.report.escape import code, prose, quoted, starts_no_block, visible


def markdown(document: Document) -> str:
    """``report.md``."""
    return _template("report.md.j2").render(document=document)


def page(document: Document, drawings: Mapping[str, bytes]) -> str:
    """``report.html``: one file without references to the outside; ``drawings`` (path -> SVG) are set in as images.

    An image's SVG runs no script and loads nothing, whatever it holds. A drawing that is missing is left out, its caption stays.
    """
    images = {name: base64.b64encode(data).decode("ascii") for name, data in drawings.items()}
    return _template("report.html.j2").render(document=document, images=images, css=_asset())


def _md_span(span: Span) -> str:
    match span:
        case Strong(text):
            return f"**{prose(text)}**"
        case Code(text):
            return code(text)
        case Link(text, href):
            return f"[{prose(text)}]({href})"
        case Cut(text, limit):
            return prose(_cut(text, limit))
        case str():
            return prose(span)


def _md_line(line: Line) -> str:
    return "".join(_md_span(s) for s in spans(line)).strip()


def _md_block(line: Line) -> str:
    """A line that opens a paragraph or a list's item."""
    return starts_no_block(_md_line(line))


def _md_prose(text: str) -> str:
    parts = (" ".join(p.split()) for p in re.split(r"\n\s*\n", visible(text, keep="\n")))
    return "\n>\n".join(f"> {starts_no_block(prose(p))}" for p in parts if p)


def _html_span(span: Span) -> Markup:
    match span:
        case Strong(text):
            return Markup("<strong>{}</strong>").format(_shown(text))
        case Code(text):
            return Markup("<code>{}</code>").format(_shown(text))
        case Link(text, href):
            return Markup('<a href="{}">{}</a>').format(href, _shown(text))
        case Cut(text, limit):
            return escape(_cut(text, limit))
        case str():
            return escape(_shown(span, strip=False))


def _cut(text: str, limit: int) -> str:
    shown = _shown(text)
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"


def _shown(text: str, *, strip: bool = True) -> str:
    line = re.sub(r"\s+", " ", visible(text, keep="\n\t\r"))
    return line.strip() if strip else line


def _html_line(line: Line) -> Markup:
    return Markup("").join(_html_span(s) for s in spans(line)).strip()


def _html_prose(text: str) -> Markup:
    parts = (" ".join(p.split()) for p in re.split(r"\n\s*\n", visible(text, keep="\n")))
    return Markup("").join(Markup("<p>{}</p>\n").format(p) for p in parts if p)


def _whole(text: str) -> str:
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"), keep="\n\t").strip("\n")


def anchor(line: Line) -> str:
    """A heading as the name of its place in the page."""
    text = "".join(s if isinstance(s, str) else s.text for s in spans(line))
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


_FILTERS: dict[str, dict[str, Any]] = {
    "report.md.j2": {
        "line": _md_line,
        "opening": _md_block,
        "whole": quoted,
        "prose": _md_prose,
        "fenced": quoted,
    },
    "report.html.j2": {
        "line": _html_line,
        "opening": _html_line,
        "whole": _whole,
        "prose": _html_prose,
        "anchor": anchor,
    },
}


@cache
def _template(name: str) -> jinja2.Template:
    """A template with the filters of its face. Only HTML has autoescape; Markdown is escaped by the filters."""
    environment = jinja2.Environment(
        autoescape=name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    untyped: Any = environment  # jinja2 leaves the type of its filters open
    untyped.filters.update(_FILTERS[name])
    return environment.from_string(_read(name))


@cache
def _asset() -> Markup:
    return Markup(_read("report.css"))  # noqa: S704 - our own file


def _read(name: str) -> str:
    return (files("a3r.report") / "templates" / name).read_text(encoding="utf-8")
