"""Foreign text becomes showable: printable, reversible where it matters, and no longer than asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.plain import plain

any_text = st.text(st.characters(), max_size=50)


@given(any_text)
def test_nothing_unprintable_is_left(text: str) -> None:
    assert plain(text).isprintable()
    assert all(c.isprintable() or c in "\n\t" for c in plain(text, newlines=True))


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=50))
def test_printable_text_stays_as_it_is(text: str) -> None:
    if text.isprintable():
        assert plain(text) == text


@given(any_text, st.integers(1, 60))
def test_a_cut_text_ends_with_an_ellipsis_and_a_short_one_does_not(text: str, limit: int) -> None:
    made = plain(text, limit)
    assert made.endswith("…") == (len(text) > limit or text.endswith("…"))
    assert made.startswith(plain(text[: min(len(text), limit - 1)]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a\x1b[2J", "a\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("x\u202ey\u200b", "x\\u202ey\\u200b"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
    ],
)
def test_each_kind_is_spelled_out(text: str, shown: str) -> None:
    assert plain(text) == shown
