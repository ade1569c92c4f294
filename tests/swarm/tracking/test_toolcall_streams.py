from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.server.tracking.toolcalls import CallPiece, Piece, TextPiece, tool_parser

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "a"}},
    {"type": "function", "function": {"name": "b"}},
]
FAMILIES = ["expression", "hermes", "llama", "mistral", "json"]
PARTS = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            '{"name": "a", "arguments": {}}',
            '{"name":"b","parameters":{"x":"</tool_call>"}}',
            '[{"name": "a", "arguments": {}}]',
            'a[ARGS]{"x":1}',
            "[TOOL_CALLS]",
            "<|python_tag|>",
            *' \n;{"\\é',
            "<tool",
            "hi",
        ]
    ),
    max_size=9,
)


def _joined(pieces: list[Piece]) -> list[str | CallPiece]:
    """Neighbouring texts as one."""
    joined: list[str | CallPiece] = []
    for piece in pieces:
        if isinstance(piece, TextPiece) and joined and isinstance(joined[-1], str):
            joined[-1] += piece.text
        else:
            joined.append(piece.text if isinstance(piece, TextPiece) else piece)
    return joined


def _read(name: str, pieces: list[str]) -> list[str | CallPiece]:
    parser = tool_parser(name)(TOOLS)
    found = [piece for text in pieces for piece in parser.feed(text)]
    return _joined([*found, *parser.finish()])


@pytest.mark.parametrize("name", FAMILIES)
@given(parts=PARTS, data=st.data())
def test_what_is_found_does_not_depend_on_how_the_text_was_cut(
    name: str, parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = _read(name, [text])
    assert _read(name, pieces) == whole
    if not any(isinstance(piece, CallPiece) for piece in whole):
        assert "".join(map(str, whole)) == text  # nothing that was sampled is hidden


def test_text_goes_out_at_once_and_a_call_when_it_is_complete() -> None:
    parser = tool_parser("hermes")(TOOLS)
    assert parser.feed("Let me see. <to") == [TextPiece("Let me see.")]
    assert parser.feed("ol_call>") == []
    assert parser.feed('{"name": "a", "arguments": {"x": 1}}') == []
    assert parser.feed("</tool_call>") == [CallPiece("a", {"x": 1})]
    assert parser.feed("\nDone") == [TextPiece("Done")]
    assert parser.finish() == []


def test_text_that_turns_out_to_be_no_call_goes_out_as_it_stood() -> None:
    parser = tool_parser("hermes")(TOOLS)
    assert parser.feed("1 <tool") == [TextPiece("1")]
    assert parser.feed("box>") == [TextPiece(" <toolbox>")]
    assert parser.feed(" <tool_call>{") == []
    assert parser.finish() == [TextPiece(" <tool_call>{")]


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("llama", '{"name": "a", "parameters": {"q": "x;y"}}', [("a", {"q": "x;y"})]),
        (
            "llama",
            '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"n": 1}}',
            [("a", {}), ("b", {"n": 1})],
        ),
        ("mistral", '[TOOL_CALLS] [{"name": "a", "arguments": {"n": 1}}]', [("a", {"n": 1})]),
        (
            "mistral",
            '[TOOL_CALLS]a[ARGS]{"n": 1}[TOOL_CALLS]b[ARGS]{}',
            [("a", {"n": 1}), ("b", {})],
        ),
        ("qwen", '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>', [("b", {})]),
    ],
)
def test_each_family_reads_its_own_form(
    name: str, text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    found = _read(name, list(text))
    assert [(c.name, c.arguments) for c in found if isinstance(c, CallPiece)] == calls
    assert not any(isinstance(piece, str) for piece in found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama", '{"name": "unknown", "parameters": {}}'),
        ("llama", '{"name": "a", "parameters": {'),
        ("mistral", "[TOOL_CALLS]a[ARGS]{broken"),
        ("mistral", "see [TOOL_CALLS][]"),
    ],
)
def test_what_does_not_parse_stays_text(name: str, text: str) -> None:
    assert _read(name, list(text)) == [text]


def test_a_closing_mark_inside_an_argument_does_not_end_the_call() -> None:
    text = '<tool_call>{"name": "a", "arguments": {"x": "say </tool_call> now"}}</tool_call>'
    assert _read("hermes", [text]) == [CallPiece("a", {"x": "say </tool_call> now"})]
