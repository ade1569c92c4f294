"""Episodes made by the real tree and tokenizers, without an engine, and the traces of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.model_files import resolve_model
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.server.tracking.tokenizer import ChatTokenizer

Messages = list[dict[str, Any]]


@pytest.fixture(scope="session", params=["tiny-calc", "tiny-calc-qwen"])
def tokenizer(request: pytest.FixtureRequest) -> ChatTokenizer:
    """Each shipped model's tokenizer and template."""
    return ChatTokenizer.from_folder(resolve_model(f"builtin:{request.param}"))


class Conversation:
    """An episode whose answers are given; ``trace`` is what the server would tell of it."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self.tree = EpisodeTree(tokenizer)

    def say(self, messages: Messages, text: str, **values: Any) -> CallRecord:
        """Answer ``messages`` with ``text`` and an end token."""
        prepared = self.tree.prepare(messages, values.pop("tools", []), {})
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_ids[0]]
        call = self.tree.commit(
            prepared,
            sampled_ids=ids,
            logprobs=[-0.25 * (i + 1) for i in range(len(ids))],
            reply={"role": "assistant", "content": text},
            finish_reason="stop",
            policy_version=3,
            temperature=1.0,
            max_tokens=64,
        )
        call = call.model_copy(update=values)
        self.tree.calls[call.index] = call
        return call

    def trace(self, **values: Any) -> EpisodeTrace:
        """The episode's trace; ``values`` replace its fields."""
        facts: dict[str, Any] = {
            "episode_id": "ep-1",
            "kind": EpisodeKind.TRAIN,
            "state": EpisodeState.FINISHED,
            "client_id": "client",
            "task_set": "default",
            "task_id": "t1",
            "group_id": "s0.g0",
            "repeat_index": 0,
            "step": 0,
            "policy_version": 3,
            "reward": 0.5,
            "granted_at": 1_700_000_000.0,
            "ended_at": 1_700_000_060.0,
            "calls": list(self.tree.calls),
            "call_count": len(self.tree.calls),
        }
        return EpisodeTrace(**facts | values)


@pytest.fixture
def talk(tokenizer: ChatTokenizer) -> Conversation:
    return Conversation(tokenizer)


@pytest.fixture
def chain(talk: Conversation) -> Callable[[int], Conversation]:
    """A conversation of that many turns, with a tool's answer after each."""

    def make(turns: int) -> Conversation:
        messages: Messages = [
            {"role": "system", "content": "You add."},
            {"role": "user", "content": "What is 2+2?"},
        ]
        for turn in range(turns):
            call = talk.say(messages, f"sum {turn}")
            messages = [*messages, call.reply, {"role": "tool", "content": f"it is {turn}"}]
        return talk

    return make
