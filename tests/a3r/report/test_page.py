"""The HTML face: the same document, self-contained, and nothing in it can run, load or pretend."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from a3r.report.blocks import Cut, Document, Link, Paragraph, Prose, Strong, Table
from a3r.report.faces import markdown, page
from a3r.report.records import DeviationRecord, Records
from a3r.report.render import claims_of, render, render_page
from a3r.report.verify import verify
from a3r.testing.edits import with_run

HOSTILE = '</td><script>alert(1)</script><img src=x onerror=e> "x" javascript:e {{ 7*7 }} [l](http://e.vil) | \u202e'


class Reader(HTMLParser):
    """Collects what a browser would see: tags, attributes, text, and what was left open."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_says_every_claim_of_the_markdown_and_every_heading(records: Records):
    read = Reader(render_page(records, {}))
    assert read.open == []
    for claim in claims_of(records):
        assert claim.text in read.text
    headings = re.findall(r"^##+ (.*)$", render(records), re.MULTILINE)
    assert len(headings) > 15
    for heading in headings:
        assert heading in read.text


def test_page_loads_nothing_and_runs_nothing(written: Path):
    source = (written / "report.html").read_text()
    read = Reader(source)
    assert not {"script", "link", "iframe", "object", "form"} & set(read.tags)
    for name, value in read.attributes:
        assert not name.startswith("on")
        if name in ("src", "href"):
            assert value.startswith(("data:image/svg+xml;base64,", "#"))
    assert "default-src 'none'" in source
    assert read.tags.count("img") == 4


def test_outside_text_stays_text_in_the_page(records: Records):
    spoiled = with_run(records, 0, state="failed", accepted_attempt=None, reason=HOSTILE)
    deviation = DeviationRecord(subject=HOSTILE, what=HOSTILE, data={HOSTILE: HOSTILE}, at=1.0)
    campaign = records.campaign.model_copy(update={"name": HOSTILE, "goal_text": HOSTILE})
    spoiled = spoiled.model_copy(update={"deviations": (deviation,), "campaign": campaign})
    read, honest = Reader(render_page(spoiled, {})), Reader(render_page(records, {}))
    assert read.open == []
    assert "script" not in read.tags
    assert "img" not in read.tags
    assert set(read.attributes) == set(honest.attributes)
    assert "<script>alert(1)</script>" in read.text
    assert "{{ 7*7 }}" in read.text
    assert "\u202e" not in read.text


def test_changed_page_and_swapped_drawings_are_caught(folder: Path, seal: Callable[[Path], None]):
    path = folder / "report.html"
    honest = path.read_text()
    path.write_text(honest.replace("max_response_tokens 10", "max_response_tokens 16", 1))
    seal(folder)
    assert verify(folder).checks[-1].name == "report.html equals its render"
    path.write_text(honest)
    first, second = folder / "figures/gain-by-level.svg", folder / "figures/timeline.svg"
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)
    seal(folder)
    assert verify(folder).checks[-1].name == "report.html equals its render"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gain +0.1 [+0.0, +0.2] of max_tokens", "gain +0.1 [+0.0, +0.2] of max_tokens"),
        ("a [l](http://e.vil) b", "a [l\\](http:&#47;&#47;e.vil) b"),
        ("![x](y)", "\\![x\\](y)"),
        ("[x]: y [a][b]", "[x\\]: y [a\\][b]"),
        (
            "_a_ *b* `c` ~d~ $e$ |f| <b>",
            "\\_a\\_ \\*b\\* \\`c\\` \\~d\\~ \\$e\\$ \\|f\\| &lt;b&gt;",
        ),
        ("# a\n\n- b", "\\# a - b"),
        ("1. a", "1\\. a"),
    ],
)
def test_sentences_read_well_in_markdown_and_can_not_format(text: str, shown: str):
    assert markdown(Document("t", blocks=(Paragraph(text),))) == f"# t\n\n{shown}\n"


def test_both_faces_of_each_span_and_of_prose():
    document = Document(
        "a|b",
        blocks=(
            Paragraph((Strong("<b>"), " ", Cut("x" * 9, 5), " ", Link("y", "records/y.json"))),
            Table(("h",), (("a|b",),), caption="c:"),
            Prose("Caveat (c1): <i>\n\n- no list"),
        ),
    )
    assert markdown(document) == (
        "# a\\|b\n\n**&lt;b&gt;** xxxx… [y](records/y.json)\n\nc:\n\n| h |\n|---|\n| a\\|b |\n\n"
        "> Caveat (c1): &lt;i&gt;\n>\n> \\- no list\n"
    )
    shown = page(document, {})
    for part in (
        "<strong>&lt;b&gt;</strong> xxxx…",
        '<a href="records/y.json">y</a>',
        "<caption>c:</caption>",
        "<p>Caveat (c1): &lt;i&gt;</p>\n<p>- no list</p>",
    ):
        assert part in shown
