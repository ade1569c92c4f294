from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.protocol.records import CallRecord
from swarm.protocol.states import FateReason, TokenFate
from swarm.server.ports import Span
from swarm.server.tracking.account import (
    TRAINED,
    Fate,
    TokenAccount,
    dropped,
    masked,
    sampled_tokens,
    whole_episode,
    with_fates,
)
from swarm.server.tracking.merge import build_rows


def call(
    index: int,
    prompt: list[int],
    sampled: list[int],
    *,
    temperature: float = 1.0,
    finish: str = "stop",
    messages: list[dict[str, Any]] | None = None,
    reply: str = "",
    tools: list[dict[str, Any]] | None = None,
) -> CallRecord:
    return CallRecord(
        index=index,
        policy_version=0,
        messages=messages or [],
        tools=tools or [],
        reply={"role": "assistant", "content": reply},
        finish_reason=finish,
        prompt_ids=prompt,
        sampled_ids=sampled,
        logprobs=[-(index + 1) - k / 10 for k in range(len(sampled))],
        temperature=temperature,
        max_tokens=8,
    )


def test_a_chain_of_four_turns_is_one_row() -> None:
    calls: list[CallRecord] = []
    ids: list[int] = []
    for turn in range(4):
        prompt = [*ids, 90 + turn]
        calls.append(call(turn, prompt, [turn, turn + 10], temperature=0.5 + turn))
        ids = [*prompt, turn, turn + 10]
    rows, fates = build_rows(calls)
    assert len(rows) == 1
    assert rows[0].ids == [90, 0, 10, 91, 1, 11, 92, 2, 12, 93, 3, 13]
    assert rows[0].spans == [Span(1, 3, 0.5), Span(4, 6, 1.5), Span(7, 9, 2.5), Span(10, 12, 3.5)]
    assert rows[0].logprobs == [lp for c in calls for lp in c.logprobs]
    assert rows[0].call_indices == [0, 1, 2, 3]
    assert fates == [TRAINED] * 4


def test_a_shared_turn_is_trained_in_the_first_row_only() -> None:
    calls = [call(0, [1], [2]), call(1, [1, 2, 3], [4]), call(2, [1, 2, 5], [6])]
    first, second = build_rows(calls).rows
    assert (first.ids, first.spans) == ([1, 2, 3, 4], [Span(1, 2, 1.0), Span(3, 4, 1.0)])
    assert (second.ids, second.spans) == ([1, 2, 5, 6], [Span(3, 4, 1.0)])
    assert second.logprobs == calls[2].logprobs


def test_the_longest_prefix_is_the_parent() -> None:
    calls = [call(0, [1], [2]), call(1, [1, 2], [3]), call(2, [1, 2, 3, 4], [5])]
    rows = build_rows(calls).rows
    assert [row.call_indices for row in rows] == [[0, 1, 2]]


def test_equal_tokens_under_other_tools_are_not_continued() -> None:
    calls = [call(0, [1], [2], tools=[{"name": "t"}]), call(1, [1, 2, 3], [4])]
    assert [row.call_indices for row in build_rows(calls).rows] == [[0], [1]]


def test_greedy_turns_are_context_and_aborted_ones_are_left_out() -> None:
    calls = [
        call(0, [1], [2], temperature=0.0),
        call(1, [1, 2, 3], [4]),
        call(2, [1, 2, 3, 4, 5], [6], temperature=0.0),
        call(3, [7], [8], finish="abort"),
        call(4, [7, 8, 9], [10]),
        call(5, [11], []),
    ]
    rows, fates = build_rows(calls)
    assert [(row.ids, row.spans) for row in rows] == [
        ([1, 2, 3, 4], [Span(3, 4, 1.0)]),
        ([7, 8, 9, 10], [Span(3, 4, 1.0)]),
    ]
    greedy = masked(FateReason.GREEDY)
    assert fates[:4] == [greedy, TRAINED, greedy, dropped(FateReason.ABORTED_CALL)]
    account = TokenAccount()
    account.add(calls, fates)
    assert account.counts == {"dropped:aborted_call": 1, "masked:greedy_sampling": 2, "trained": 2}
    assert (account.total, account.trained) == (sampled_tokens(calls), 2)


def test_an_episode_without_a_trainable_token_has_no_rows() -> None:
    assert build_rows([]).rows == []
    assert build_rows([call(0, [1], [2], temperature=0.0), call(1, [1], [])]).rows == []


def _text(ids: int) -> bytes:
    """A toy vocabulary: 0-9 are letters, 10-19 the letter pairs "aa".."aj", 99 the end token."""
    if ids == 99:
        return b"<end>"
    return bytes([97 + ids]) if ids < 10 else b"a" + bytes([97 + ids - 10])


USER = [{"role": "user", "content": "q"}]
NEXT = [*USER, {"role": "assistant", "content": "ab"}, {"role": "user", "content": "r"}]


def test_text_matching_keeps_the_captured_ids_where_the_later_prompt_spells_them_otherwise() -> (
    None
):
    first = call(0, [5], [0, 1, 99], messages=USER, reply="ab")  # a, b, <end>
    drifted = call(1, [5, 11, 99, 6], [7], messages=NEXT, reply="h")  # "ab" as one token
    assert len(build_rows([first, drifted]).rows) == 2
    (row,) = build_rows([first, drifted], "text", token_bytes=_text).rows
    assert row.ids == [5, 0, 1, 99, 6, 7]
    assert row.spans == [Span(1, 4, 1.0), Span(5, 6, 1.0)]
    assert row.logprobs == first.logprobs + drifted.logprobs


def test_text_matching_survives_drift_in_several_turns() -> None:
    third = [*NEXT, {"role": "assistant", "content": "h"}, {"role": "user", "content": "s"}]
    calls = [
        call(0, [5], [0, 1, 99], messages=USER, reply="ab"),
        call(1, [5, 11, 99, 6], [0, 7, 99], messages=NEXT, reply="h"),
        call(2, [5, 11, 99, 6, 17, 99, 8], [9], messages=third, reply="j"),
    ]
    (row,) = build_rows(calls, "text", token_bytes=_text).rows
    assert row.ids == [5, 0, 1, 99, 6, 0, 7, 99, 8, 9]
    assert row.call_indices == [0, 1, 2]


@pytest.mark.parametrize(
    "prompt",
    [[5, 12, 99, 6], [5, 0, 1], [5, 0, 1, 98, 6]],
    ids=["other text", "too short", "other end"],
)
def test_text_matching_does_not_join_what_does_not_read_the_same(prompt: list[int]) -> None:
    first = call(0, [5], [0, 1, 99], messages=USER, reply="ab")
    other = call(1, prompt, [7], messages=NEXT)
    spelled = {98: b"<eos>"}
    rows = build_rows([first, other], "text", token_bytes=lambda i: spelled.get(i) or _text(i)).rows
    assert [row.ids for row in rows] == [[5, 0, 1, 99], [*prompt, 7]]


def test_a_new_part_that_begins_inside_a_token_is_not_joined() -> None:
    first = call(0, [5], [0], messages=USER, reply="ab", finish="length")  # "a"
    other = call(1, [5, 11], [7], messages=NEXT)  # "ab" is one token
    assert len(build_rows([first, other], "text", token_bytes=_text).rows) == 2


def test_whole_episodes_are_masked_or_dropped_for_one_reason() -> None:
    calls = [call(0, [1], [2, 3]), call(1, [4], [5], temperature=0.0)]
    zero = whole_episode(calls, masked(FateReason.ZERO_ADVANTAGE))
    assert zero == [masked(FateReason.ZERO_ADVANTAGE), masked(FateReason.GREEDY)]
    late = whole_episode(calls, dropped(FateReason.LEFTOVER))
    assert late == [dropped(FateReason.LEFTOVER)] * 2
    marked = with_fates(calls, late)
    assert [(c.fate, c.fate_reason) for c in marked] == [
        (TokenFate.DROPPED, FateReason.LEFTOVER)
    ] * 2
    assert calls[0].fate is None


ids = st.lists(st.integers(0, 2), max_size=3)
steps = st.lists(
    st.tuples(
        st.integers(0, 12),
        ids,
        ids,
        st.sampled_from([0.0, 0.7, 1.0]),
        st.sampled_from(["stop", "length", "abort"]),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_any_tree_of_calls_trains_every_sampled_token_exactly_once_in_real_sequences(
    plan: list[tuple[int, list[int], list[int], float, str]],
) -> None:
    calls: list[CallRecord] = []
    for pick, suffix, sampled, temperature, finish in plan:
        before = calls[pick % len(calls)] if calls and pick < 10 else None
        start = before.prompt_ids + before.sampled_ids if before else []
        calls.append(
            call(len(calls), start + suffix, sampled, temperature=temperature, finish=finish)
        )
    rows, fates = build_rows(calls)
    whole = [c.prompt_ids + c.sampled_ids for c in calls]
    trained: Counter[int] = Counter()
    for row in rows:
        assert row.ids in whole
        logprobs: list[float] = []
        for span, index in zip(row.spans, row.call_indices, strict=True):
            one = calls[index]
            assert row.ids[: span.end] == one.prompt_ids + one.sampled_ids
            assert (span.end - span.start, span.temperature) == (
                len(one.sampled_ids),
                one.temperature,
            )
            trained[index] += 1
            logprobs += one.logprobs
        assert row.logprobs == logprobs
        assert row.spans
    expected = [i for i, c in enumerate(calls) if fates[i] == TRAINED and c.sampled_ids]
    assert trained == Counter(expected)
    account = TokenAccount()
    account.add(calls, fates)
    assert account.total == sampled_tokens(calls)
    assert account.trained == sum(len(row.logprobs) for row in rows)
    assert all(isinstance(fate, Fate) for fate in fates)
