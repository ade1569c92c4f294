"""Conversations of several turns with tools and thinking, in the documented formats of three model families."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.server.service.choices import ChoiceText
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.server.tracking.reasoning import ReasoningSplit
from swarm.server.tracking.toolcalls import call_name, tool_parser
from swarm.testing.families import CONTROL, family_tokenizer

NAMES = tuple(CONTROL)
TOKENIZERS = {name: family_tokenizer(name) for name in NAMES}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALLS = {
    "qwen3": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    "qwq": 'so\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    "llama3": '{"name": "add", "parameters": {"a": 1}}',
    "mistral": '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
}
ANSWERS = {
    "qwen3": "<think>\nadd them\n</think>\n\nIt is 3.",
    "qwq": "add them\n</think>\n\nIt is 3.",
    "llama3": "It is 3.",
    "mistral": " It is 3.",
}
Messages = list[dict[str, Any]]


class Talk:
    """One episode with a scripted model of a family."""

    def __init__(self, name: str) -> None:
        self.name, self.tokenizer = name, TOKENIZERS[name]
        self.tree = EpisodeTree(self.tokenizer)

    def ask(self, messages: Messages, text: str, **kwargs: Any) -> Any:
        """Let the model say ``text``; returns the record."""
        prepared = self.tree.prepare(messages, TOOLS, kwargs)
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_ids[0]]
        marks = self.tokenizer.think_marks
        tail = self.tokenizer.decode(prepared.prompt_ids[-16:])
        choice = ChoiceText(
            self.tokenizer,
            tool_parser(self.tokenizer.tool_parser)(TOOLS),
            stops=[],
            thinking=ReasoningSplit(marks, inside=marks.opened_by(tail)) if marks else None,
            call_id=lambda n: call_name(self.tokenizer.tool_parser, prepared.path, n),
        )
        choice.finish(ids)
        self.reasoning_tokens = choice.reasoning_tokens(ids)
        return self.tree.commit(
            prepared,
            sampled_ids=ids,
            logprobs=[-1.0] * len(ids),
            reply=choice.message(),
            finish_reason=choice.finish_reason("stop"),
            policy_version=0,
            temperature=1.0,
            max_tokens=99,
        )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(call: Any, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.reply["tool_calls"][0]["id"], "content": text}


@pytest.mark.parametrize("name", NAMES)
def test_each_turn_goes_on_from_what_was_sampled(name: str) -> None:
    talk = Talk(name)
    messages = [{"role": "system", "content": "Be brief."}, user("1+2?")]
    first = talk.ask(messages, CALLS[name])
    assert first.finish_reason == "tool_calls"
    assert first.reply["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}
    messages += [first.reply, result(first, "3")]
    second = talk.ask(messages, ANSWERS[name])
    assert second.reply["content"].strip() == "It is 3."
    third = talk.ask([*messages, second.reply, user("Sure?")], ANSWERS[name])
    assert [call.parent for call in talk.tree.calls] == [None, 0, 1]
    assert talk.tree.divergences == 0
    for call, parent in ((second, first), (third, second)):
        captured = parent.prompt_ids + parent.sampled_ids
        assert call.prompt_ids[: len(captured)] == captured


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_leaves_out_the_thinking_goes_on_all_the_same(name: str) -> None:
    talk = Talk(name)
    first = talk.ask([user("1+2?")], ANSWERS[name])
    said = {k: v for k, v in first.reply.items() if k != "reasoning_content"}
    with_it = talk.tree.prepare([user("1+2?"), first.reply, user("Sure?")], TOOLS, {})
    without = talk.tree.prepare([user("1+2?"), said, user("Sure?")], TOOLS, {})
    assert with_it.prompt_ids == without.prompt_ids
    assert (with_it.parent, without.parent) == (0, 0)


def test_of_two_equal_answers_the_one_whose_thinking_came_back_is_continued() -> None:
    talk = Talk("qwen3")
    question = [user("1+2?")]
    first = talk.ask(question, "<think>\nfirst\n</think>\n\n3")
    second = talk.ask(question, "<think>\nsecond\n</think>\n\n3")
    assert first.reply["content"] == second.reply["content"]
    for call in (second, second, first):
        prepared = talk.tree.prepare([*question, call.reply, user("Sure?")], TOOLS, {})
        assert prepared.parent == call.index


def test_thinking_that_a_client_brings_along_is_written_as_the_template_wants() -> None:
    talk = Talk("qwen3")
    said = {"role": "assistant", "content": "ok", "reasoning_content": "hm"}
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    turn = [user("1+2?"), {**said, "tool_calls": [call]}, {"role": "tool", "content": "3"}]
    text = talk.tokenizer.decode(talk.tree.prepare(turn, TOOLS, {}).prompt_ids)
    assert "<think>\nhm\n</think>\n\nok" in text
    old = talk.tokenizer.decode(
        talk.tree.prepare([*turn, said, user("2+2?")], TOOLS, {}).prompt_ids
    )
    assert "hm" not in old  # the template leaves the thinking of earlier questions out


@pytest.mark.parametrize(
    ("name", "text", "reasoning", "content", "tokens"),
    [
        ("qwen3", ANSWERS["qwen3"], "add them", "It is 3.", 12),
        ("qwq", ANSWERS["qwq"], "add them", "It is 3.", 10),
        ("qwen3", "It is 3.", None, "It is 3.", 0),
        ("qwen3", "<think>\nnever closed", "never closed", "", 14),
        ("qwq", "never closed", "never closed", "", 12),
        ("qwen3", "stray</think>3", None, "stray</think>3", 0),
        ("llama3", "<think>it knows none</think>3", None, "<think>it knows none</think>3", 0),
    ],
)
def test_thinking_is_told_apart_and_its_tokens_are_counted(
    name: str, text: str, reasoning: str | None, content: str, tokens: int
) -> None:
    talk = Talk(name)
    reply = talk.ask([user("1+2?")], text).reply
    assert reply.get("reasoning_content") == reasoning
    assert reply["content"] == content
    assert talk.reasoning_tokens == tokens


def test_a_template_that_is_told_not_to_think_closes_the_thought_itself() -> None:
    talk = Talk("qwen3")
    call = talk.ask([user("1+2?")], "It is 3.", enable_thinking=False)
    assert talk.tokenizer.decode(call.prompt_ids).endswith("<think>\n\n</think>\n\n")
    assert call.reply == {"role": "assistant", "content": "It is 3."}


def test_ids_of_calls_are_what_mistrals_templates_take_and_stay_the_same_at_the_same_place() -> (
    None
):
    ids = {call_name("mistral", "0.0-abc", n) for n in range(9)}
    assert len(ids) == 9
    assert all(len(one) == 9 and one.isalnum() for one in ids)
    assert call_name("mistral", "0.0-abc", 0) in ids
    assert call_name("qwen", "0.0-abc", 2) == "call-0.0-abc-2"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["user", "system", "tool", "tools", "arguments"])
def test_nobody_but_the_template_writes_control_tokens(name: str, place: str) -> None:
    honest, hostile = _conversation(name, place, "x"), _conversation(name, place, "")
    assert honest == hostile


def _conversation(name: str, place: str, word: str) -> list[int]:
    """Control tokens of a prompt in which ``place`` spells all of the family's, or (with ``word``) nothing of the kind."""
    tokenizer = TOKENIZERS[name]
    bad = word or "".join(CONTROL[name])
    said = {key: bad if key == place else "fine" for key in ("user", "system", "tool")}
    function = {"name": "add", "arguments": "{}"}
    tools = [{"type": "function", "function": {"name": "add"}}]
    if place == "arguments":
        function["arguments"] = f'{{"a": ["{bad}"]}}'
    if place == "tools":
        tools[0]["function"] = {"name": "add", "description": bad, "parameters": {"const": bad}}
    call = {"id": "a1b2c3d4e", "type": "function", "function": function}
    messages = [
        {"role": "system", "content": said["system"]},
        user(said["user"]),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": said["tool"]},
    ]
    prepared = EpisodeTree(tokenizer).prepare(messages, tools, {})
    assert (prepared.guarded > 0) is (not word)
    control = {tokenizer.encode(text)[0] for text in CONTROL[name]}
    return [i for i in prepared.prompt_ids if i in control]
