"""Calls of several agents and calls with masked tokens: rows and the account stay exact."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.protocol.records import CallRecord
from swarm.protocol.states import FateReason, TokenFate
from swarm.server.tracking.account import (
    TRAINED,
    TokenAccount,
    call_fate,
    dropped,
    masked,
    own_fates,
    rolled_back,
    sampled_tokens,
    whole_episode,
    with_fates,
)
from swarm.server.tracking.merge import build_rows


def call(index: int, prompt: list[int], sampled: list[int], **more: object) -> CallRecord:
    values = {
        "index": index,
        "policy_version": 0,
        "messages": [],
        "reply": {"role": "assistant", "content": ""},
        "finish_reason": "stop",
        "prompt_ids": prompt,
        "sampled_ids": sampled,
        "logprobs": [-index - k / 10 for k in range(len(sampled))],
        "temperature": 1.0,
        "max_tokens": 8,
    }
    return CallRecord.model_validate(values | more)


ids = st.lists(st.integers(0, 2), max_size=3)
steps = st.lists(
    st.tuples(
        st.integers(0, 12),
        ids,
        st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=4),
        st.sampled_from(["", "seer", "judge"]),
        st.sampled_from([0.0, 1.0]),
        st.sampled_from(["stop", "abort"]),
    ),
    max_size=12,
)
AGENTS = {"seer": True, "judge": False}


@settings(max_examples=300, deadline=None)
@given(steps)
def test_every_token_that_may_train_is_in_one_row_of_its_own_agent_and_the_account_adds_up(
    plan: list[tuple[int, list[int], list[tuple[int, bool]], str, float, str]],
) -> None:
    calls: list[CallRecord] = []
    for pick, suffix, sampled, agent, temperature, finish in plan:
        before = calls[pick % len(calls)] if calls and pick < 10 else None
        start = before.prompt_ids + before.sampled_ids if before else []
        mask = [kept for _, kept in sampled]
        calls.append(
            call(
                len(calls),
                start + suffix,
                [token for token, _ in sampled],
                agent=agent,
                temperature=temperature,
                finish_reason=finish,
                token_mask=[] if all(mask) else mask,
            )
        )
    fates = own_fates(calls, AGENTS)
    rows, same = build_rows(calls, fates=fates)
    assert same == fates
    trained: Counter[tuple[int, int]] = Counter()
    for row in rows:
        assert len({calls[i].agent for i in row.call_indices}) == 1
        assert "judge" not in {calls[i].agent for i in row.call_indices}
        logprobs: list[float] = []
        for span, index, start in zip(row.spans, row.call_indices, row.starts, strict=True):
            one, length = calls[index], span.end - span.start
            assert length > 0
            whole = one.prompt_ids + one.sampled_ids[: start + length]
            assert row.ids[: span.end] == whole
            logprobs += one.logprobs[start : start + length]
            trained.update((index, start + k) for k in range(length))
        assert row.logprobs == logprobs
        assert row.spans == sorted(row.spans, key=lambda span: span.start)
    expected = {
        (c.index, k)
        for c, fate in zip(calls, fates, strict=True)
        if fate == TRAINED
        for k in range(len(c.sampled_ids))
        if not c.token_mask or c.token_mask[k]
    }
    assert trained == Counter(expected)
    account = TokenAccount()
    account.add(calls, fates)
    assert account.total == sampled_tokens(calls)
    assert account.trained == len(expected)
    parts = account.by_agent
    assert sum(sum(counts.values()) for counts in parts.values()) == account.total
    assert all(counts["trained"] >= 0 for counts in parts.values() if "trained" in counts)
    account.undo_training()
    assert (account.trained, account.total) == (0, sampled_tokens(calls))


def test_the_fate_of_a_call_by_itself() -> None:
    assert call_fate(call(0, [1], [2], excluded=True)) == masked(FateReason.EXCLUDED_CALL)
    assert call_fate(call(0, [1], [2, 3], token_mask=[False, False])) == masked(
        FateReason.CLIENT_MASK
    )
    assert call_fate(call(0, [1], [2, 3], token_mask=[False, True])) == TRAINED
    cut = call(0, [1], [2], agent="judge", finish_reason="abort")
    assert own_fates([cut], {"judge": False}) == [dropped(FateReason.ABORTED_CALL)]
    greedy = call(0, [1], [2], agent="judge", temperature=0.0)
    assert own_fates([greedy], {"judge": False}) == [masked(FateReason.AGENT_NOT_TRAINED)]


def test_a_group_without_preference_leaves_masked_tokens_and_untrained_agents_what_they_are() -> (
    None
):
    calls = [call(0, [1], [2, 3], token_mask=[True, False]), call(1, [4], [5], agent="judge")]
    fates = whole_episode(calls, masked(FateReason.ZERO_ADVANTAGE), {"judge": False})
    account = TokenAccount()
    account.add(calls, fates)
    assert account.counts == {
        "masked:agent_not_trained": 1,
        "masked:client_mask": 1,
        "masked:zero_advantage": 1,
    }
    account = TokenAccount()
    account.add(calls, whole_episode(calls, dropped(FateReason.LEFTOVER)))
    assert account.counts == {"dropped:leftover": 3}


def test_an_undone_update_takes_fate_and_advantages_back() -> None:
    calls = with_fates(
        [call(0, [1], [2]), call(1, [3], [4], temperature=0.0)],
        [TRAINED, masked(FateReason.GREEDY)],
        [[0.5], []],
    )
    first, second = rolled_back(calls)
    assert (first.fate, first.fate_reason, first.advantages) == (
        TokenFate.MASKED,
        FateReason.ROLLED_BACK,
        [],
    )
    assert second == calls[1]


def test_text_matching_does_not_join_two_agents() -> None:
    user = {"role": "user", "content": "a"}
    said = {"role": "assistant", "content": "b"}
    first = call(0, [1], [2], messages=[user], reply=said, agent="seer")
    more = [user, said, {"role": "user", "content": "c"}]
    for agent, rows in (("seer", 1), ("wolf", 2)):
        second = call(1, [1, 2, 3], [4], messages=more, agent=agent)
        found = build_rows([first, second], "text", token_bytes=lambda token: bytes([96 + token]))
        assert len(found.rows) == rows
