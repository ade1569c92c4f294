"""Advantages and masks of a client's own, through the client and a live server; on the toy engine, whose answers have a known length."""

from __future__ import annotations

import pytest

from swarm.client import SwarmClient
from swarm.protocol.episodes import CallTokens
from swarm.protocol.errors import RewardError, TokensError
from swarm.protocol.states import FateReason, TokenFate

HELLO = [{"role": "user", "content": "Compute 1+2."}]


def test_own_advantages_and_masks_are_trained_and_traced(client: SwarmClient) -> None:
    with client.episode("t") as episode:
        episode.chat(HELLO, max_tokens=4)
        (call,) = client.trace(episode.id).calls
        count = len(call.sampled_ids)
        with pytest.raises(TokensError):
            episode.finish(1.0, tokens=[{"call_index": 0, "advantages": [float("nan")] * count}])
        with pytest.raises(TokensError, match="values for"):
            episode.finish(1.0, tokens=[CallTokens(call_index=0, mask=[True] * (count + 1))])
        with pytest.raises(RewardError):
            episode.finish(rewards={"nobody": 1.0})
        chosen = [0.5] * count
        mask = [False] + [True] * (count - 1)
        tokens = [CallTokens(call_index=0, advantages=chosen, mask=mask)]
        assert episode.finish(1.0, tokens=tokens).accepted
    for task, reward in (("t", 1.0), ("u", 1.0), ("u", 1.0)):
        with client.episode(task) as other:
            other.chat(HELLO)
            other.finish(reward)
    client.wait_step(0, timeout_s=10)
    (call,) = client.trace(episode.id).calls
    assert (call.fate, call.fate_reason) == (TokenFate.TRAINED, FateReason.NONE)
    assert (call.advantages, call.token_mask) == (chosen, mask)
    (metrics,) = client.metrics()
    assert metrics.tokens["trained"] == count - 1
    assert metrics.tokens["masked:client_mask"] == 1
