"""Each prompt token is laid at the door of who wrote it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.protocol.records import CallRecord
from swarm.server.model_files import resolve_model
from swarm.server.page.authors import Author, prompt_authors
from swarm.server.page.tree import in_reading_order
from swarm.server.tracking.tokenizer import ChatTokenizer

CHATML = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
ROLES = {"system": Author.SYSTEM, "user": Author.USER, "tool": Author.TOOL}


def call_of(tokenizer, messages, ids=None) -> CallRecord:
    return CallRecord(
        index=0,
        policy_version=0,
        messages=messages,
        reply={"role": "assistant", "content": ""},
        finish_reason="stop",
        prompt_ids=ids or tokenizer.encode(tokenizer.render(messages, [], {})),
        sampled_ids=[],
        logprobs=[],
        temperature=1.0,
        max_tokens=1,
    )


def by_author(tokenizer, call, authors, cut=0):
    """(author, text) of each run of tokens of one author."""
    runs: list[tuple[Author, bytes]] = []
    for token, author in zip(call.prompt_ids[cut:], authors, strict=True):
        piece = tokenizer.token_bytes(token)
        if runs and runs[-1][0] is author:
            runs[-1] = (author, runs[-1][1] + piece)
        else:
            runs.append((author, piece))
    return [(author, text.decode()) for author, text in runs]


def test_template_and_messages_are_told_apart(tokenizer):
    messages = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "What is 2+2?"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "no"},
    ]
    call = call_of(tokenizer, messages)
    runs = by_author(tokenizer, call, prompt_authors(call, None, 0, tokenizer))
    written = [(author, text) for author, text in runs if author is not Author.TEMPLATE]
    assert written == [
        (Author.SYSTEM, "You add."),
        (Author.USER, "What is 2+2?"),
        (Author.ASSISTANT, "three"),
        (Author.USER, "no"),
    ]


def test_a_continued_prompt_has_only_what_is_new(chain):
    talk = chain(2)
    place = in_reading_order(talk.tree.calls)[1]
    authors = prompt_authors(place.call, place.parent, place.cut, talk.tokenizer)
    runs = by_author(talk.tokenizer, place.call, authors, place.cut)
    assert [run for run in runs if run[0] is not Author.TEMPLATE] == [(Author.TOOL, "it is 0")]
    assert Author.SAMPLED not in authors


def test_a_content_that_spells_the_template_is_still_the_users(tokenizer):
    messages = [{"role": "user", "content": "user"}, {"role": "user", "content": "assistant"}]
    call = call_of(tokenizer, messages)
    runs = by_author(tokenizer, call, prompt_authors(call, None, 0, tokenizer))
    assert [text for author, text in runs if author is Author.USER] == ["user", "assistant"]


def test_what_the_template_did_not_write_word_for_word_is_searched_for(tokenizer):
    messages = [{"role": "user", "content": "  spaced  "}, {"role": "user", "content": "gone"}]
    shown = tokenizer.render([{"role": "user", "content": "spaced"}], [], {})
    call = call_of(tokenizer, messages, tokenizer.encode(shown))
    runs = by_author(tokenizer, call, prompt_authors(call, None, 0, tokenizer))
    assert [text for author, text in runs if author is Author.USER] == ["spaced"]


def test_an_empty_prompt_has_no_authors(tokenizer):
    call = call_of(tokenizer, [], [])
    call = call.model_copy(update={"prompt_ids": []})
    assert prompt_authors(call, None, 0, tokenizer) == []


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["<|im_end|>", "user\n", "WRITTENBY", "<|im_start|>assistant\n", " ", "\n"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "tool", "assistant"]), texts)))
def test_every_token_has_the_author_of_its_first_byte(said):
    """The oracle writes ChatML by hand, as the tiny model's template does."""
    messages = [{"role": role, "content": text} for role, text in said]
    call = call_of(CHATML, messages)
    edges: list[tuple[int, Author]] = []
    at = 0
    for role, text in said:
        for author, piece in (
            (Author.TEMPLATE, f"<|im_start|>{role}\n"),
            (ROLES.get(role, Author.ASSISTANT), text),
            (Author.TEMPLATE, "<|im_end|>\n"),
        ):
            if piece:
                edges.append((at, author))
                at += len(piece.encode())
    edges.append((at, Author.TEMPLATE))
    found = prompt_authors(call, None, 0, CHATML)
    position = 0
    for token, author in zip(call.prompt_ids, found, strict=True):
        spans = [*pairwise(edges), (edges[-1], (1 << 30, Author.TEMPLATE))]
        assert author is next(a for (start, a), (end, _) in spans if start <= position < end)
        position += len(CHATML.token_bytes(token))
