from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.server.tracking.reasoning import ReasoningSplit, Said, ThinkMarks

MARKS = ThinkMarks()
PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "\n", " ", "a", "é", "3 < 4"]), max_size=8
)


def _split(pieces: list[str], *, inside: bool = False) -> Said:
    reader = ReasoningSplit(MARKS, inside=inside)
    said = [*map(reader.feed, pieces), reader.finish()]
    return Said("".join(s.reasoning for s in said), "".join(s.text for s in said))


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("<think>\nsum\n</think>\n\n85", False, Said("sum", "85")),
        ("sum\n</think>\n\n85", True, Said("sum", "85")),
        ("<think>never closed", False, Said("never closed", "")),
        ("85", False, Said("", "85")),
        ("I <think> so</think>", False, Said("", "I <think> so</think>")),
        ("stray</think>85", False, Said("", "stray</think>85")),
        ("<think></think>85", False, Said("", "85")),
        ("", False, Said("", "")),
    ],
)
def test_thinking_is_told_apart_from_the_answer(text: str, inside: bool, expected: Said) -> None:
    assert _split([text], inside=inside) == expected


@given(PARTS, st.booleans(), st.data())
def test_how_the_text_was_cut_does_not_matter(
    parts: list[str], inside: bool, data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert _split(pieces, inside=inside) == _split([text], inside=inside)


def test_thinking_goes_out_while_it_grows() -> None:
    reader = ReasoningSplit(MARKS, inside=False)
    assert reader.feed("<think>one ") == Said("one ", "")
    assert reader.feed("two</th") == Said("two", "")
    assert not reader.closed
    assert reader.feed("ink>three") == Said("", "three")
    assert reader.closed


def test_a_template_may_open_the_thinking_itself() -> None:
    assert MARKS.opened_by("<|im_start|>assistant\n<think>\n")
    assert not MARKS.opened_by("<|im_start|>assistant\n")
