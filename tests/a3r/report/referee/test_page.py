"""docs/concepts/referee.md says what the code does, and the figures that the corpus gives."""

import re
from pathlib import Path

import pytest

from a3r.report.referee.rules import RULES
from a3r.testing.faults.score import corpus_score

PAGE = Path(__file__).parents[4] / "docs" / "concepts" / "referee.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.+) \| (.*?) ?\| (.*?) ?\|$", re.MULTILINE)


def test_the_page_lists_every_rule_with_its_meaning_and_what_it_may_say():
    rows = [row[:3] for row in ROW.findall(PAGE.read_text("utf-8"))]
    told = {"reward_plateau": "note"}
    assert rows == [
        (r.name, "invalid" if r.excludes else told.get(r.name, "suspect"), r.meaning) for r in RULES
    ]


@pytest.mark.slow
def test_the_page_shows_the_figures_of_the_corpus():
    score = corpus_score()
    text = PAGE.read_text("utf-8")
    shown = {row[0]: row[3:] for row in ROW.findall(text)}
    for tally in score.rules:
        figures = (tally.precision, tally.recall)
        assert shown[tally.rule] == tuple(f"{100 * (f or 0):.0f} %" for f in figures)
    assert f"{score.faulty} synthetic runs" in text
    assert f"({score.clean_invalid} excluded, {score.clean_suspect} doubted)" in text
