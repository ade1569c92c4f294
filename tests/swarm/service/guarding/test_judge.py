"""From findings to a finish: which action wins, whose reward is replaced, what is not judged."""

import pytest

from swarm.protocol.config import GuardConfig
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.records import CallRecord
from swarm.server.model_files import resolve_model
from swarm.server.service.guarding.judge import (
    TOLD,
    Judgement,
    judge_episode,
    with_rewards_zeroed,
)
from swarm.server.tracking.tokenizer import ChatTokenizer

BOTH = "again and " * 20 + "<|im_start|>"
"""A loop with a control token after it."""


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))


def call(tokenizer: ChatTokenizer, text: str, **fields: object) -> CallRecord:
    ids = tokenizer.encode(text)
    values = {"reply": {"content": text}, "temperature": 1.0, "index": 0, **fields}
    return CallRecord.model_validate(
        {"policy_version": 0, "messages": [], "finish_reason": "stop", "prompt_ids": [1]}
        | {"sampled_ids": ids, "logprobs": [0.0] * len(ids), "max_tokens": 99, **values}
    )


def test_every_rule_that_speaks_is_told_with_its_own_action(tokenizer):
    config = GuardConfig(loop="count", special_tokens="mask")
    found = judge_episode(config, tokenizer, [call(tokenizer, BOTH)])
    assert found.calls[0].guard == ["loop:count", "special_tokens:mask"]
    assert (found.dropped, found.zeroed) == ("", frozenset())


def test_drop_becomes_mask_when_no_more_may_be_dropped(tokenizer):
    config = GuardConfig(loop="drop")
    found = judge_episode(config, tokenizer, [call(tokenizer, BOTH)], may_drop=False)
    assert (found.dropped, found.calls[0].guard) == ("", ["loop:mask"])


@pytest.mark.parametrize(
    "fields", [{"excluded": True}, {"temperature": 0.0}, {"finish_reason": "abort"}]
)
def test_call_that_would_not_train_anyway_is_not_judged(tokenizer, fields: dict):
    calls = [call(tokenizer, BOTH, **fields)]
    found = judge_episode(GuardConfig(loop="drop"), tokenizer, calls)
    assert (found.dropped, found.calls) == ("", calls)


def test_only_the_agent_that_made_the_call_loses_its_reward(tokenizer):
    calls = [call(tokenizer, "12", agent="a"), call(tokenizer, BOTH, index=1, agent="b")]
    found = judge_episode(GuardConfig(loop="zero"), tokenizer, calls)
    request = FinishRequest(reward=0.5, rewards={"a": 1.0, "b": 0.9})
    zeroed = with_rewards_zeroed(request, found, 0.0)
    assert (zeroed.reward, zeroed.rewards) == (0.5, {"a": 1.0, "b": 0.0})


def test_agent_that_shares_the_reward_of_all_gets_one_of_its_own():
    found = Judgement([], zeroed=frozenset({"b"}))
    zeroed = with_rewards_zeroed(FinishRequest(reward=0.5), found, 0.0)
    assert (zeroed.reward, zeroed.rewards, zeroed.metrics) == (0.5, {"b": 0.0}, {TOLD: 0.5})


def test_finish_without_a_finding_is_the_same_object():
    request = FinishRequest(reward=0.5)
    assert with_rewards_zeroed(request, Judgement([]), 0.0) is request


def test_guard_that_is_off_has_no_actions():
    assert GuardConfig().actions() == {}
    assert GuardConfig(loop="mask").actions() == {"loop": "mask"}
