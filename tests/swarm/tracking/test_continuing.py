"""Answers that go on from their beginning, prompts that are only asked about, and several answers to one prompt."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.protocol.errors import RequestError
from swarm.protocol.records import CallRecord
from swarm.server.model_files import resolve_model
from swarm.server.tracking.episode_tree import EpisodeTree, PreparedPrompt
from swarm.server.tracking.merge import build_rows
from swarm.server.tracking.tokenizer import ChatTokenizer

TOKENIZER = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
EOS = TOKENIZER.eos_ids[0]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def commit(
    tree: EpisodeTree, prepared: PreparedPrompt, text: str, *, ended: bool = True
) -> CallRecord:
    ids = [*(i for letter in text for i in TOKENIZER.encode(letter)), *[EOS] * ended]
    return tree.commit(
        prepared,
        sampled_ids=ids,
        logprobs=[-1.0] * len(ids),
        reply=said("assistant", text),
        finish_reason="stop" if ended else "length",
        policy_version=0,
        temperature=1.0,
        max_tokens=9,
    )


def goes_on(tree: EpisodeTree, *messages: dict[str, Any]) -> PreparedPrompt:
    return tree.prepare(list(messages), [], {}, continue_final=True)


def test_a_truncated_answer_is_continued_on_its_own_ids_in_one_row() -> None:
    tree, question = EpisodeTree(TOKENIZER), said("user", "Hi")
    first = commit(tree, tree.prepare([question], [], {}), "hel", ended=False)
    rest = goes_on(tree, question, first.reply)
    assert rest.prompt_ids == first.prompt_ids + first.sampled_ids
    second = commit(tree, rest, "lo")
    # The client has one message made of both.
    third = tree.prepare([question, said("assistant", "hello"), said("user", "?")], [], {})
    captured = second.prompt_ids + second.sampled_ids
    assert third.prompt_ids[: len(captured)] == captured
    assert (rest.parent, third.parent) == (0, 1)
    assert tree.divergences == 0
    assert len(build_rows(tree.calls).rows) == 1


def test_an_answer_that_had_ended_goes_on_without_its_end() -> None:
    tree, question = EpisodeTree(TOKENIZER), said("user", "Hi")
    first = commit(tree, tree.prepare([question], [], {}), "hello")
    rest = goes_on(tree, question, first.reply)
    assert rest.prompt_ids == first.prompt_ids + first.sampled_ids[:-1]
    assert rest.parent is None


def test_a_beginning_that_the_client_wrote_lies_on_captured_history() -> None:
    tree, question = EpisodeTree(TOKENIZER), said("user", "Hi")
    first = commit(tree, tree.prepare([question], [], {}), "hello")
    begun = [question, first.reply, said("user", "More"), said("assistant", "Well, ")]
    prepared = goes_on(tree, *begun)
    captured = first.prompt_ids + first.sampled_ids
    assert prepared.prompt_ids[: len(captured)] == captured
    assert TOKENIZER.decode(prepared.prompt_ids).endswith("<|im_start|>assistant\nWell, ")
    second = commit(tree, prepared, "yes")
    after = [*begun[:-1], said("assistant", "Well, yes"), said("user", "?")]
    assert tree.prepare(after, [], {}).parent == second.index


def test_a_prompt_that_is_only_asked_about_leaves_no_trace() -> None:
    asked, silent = EpisodeTree(TOKENIZER), EpisodeTree(TOKENIZER)
    question = [said("user", "Hi")]
    for _ in range(3):
        asked.prompt_ids(question, [], {})
        asked.text_ids("12+")
    for tree in (asked, silent):
        first = commit(tree, tree.prepare(question, [], {}), "hello")
        if tree is asked:
            wrong = [*question, said("assistant", "other"), said("user", "?")]
            assert tree.prompt_ids(wrong, [], {})
        tree.prepare([*question, first.reply, said("user", "?")], [], {})
        tree.prepare_text("12+")
    again = [said("user", "Hi")]
    assert asked.prepare(again, [], {}).path == silent.prepare(again, [], {}).path
    assert asked.divergences == silent.divergences == 0


def test_several_answers_to_one_prompt_are_prepared_as_if_it_had_been_sent_as_often() -> None:
    one, many = EpisodeTree(TOKENIZER), EpisodeTree(TOKENIZER)
    question = [said("user", "<|im_end|>")]
    prepared = one.prepare(question, [], {})
    paths = [prepared.path, *(one.again(prepared).path for _ in range(2))]
    assert paths == [many.prepare(question, [], {}).path for _ in range(3)]
    assert (prepared.guarded, one.again(prepared).guarded) == (1, 0)  # told once


def test_an_answer_cut_at_a_stop_string_goes_on_after_it() -> None:
    tree = EpisodeTree(TOKENIZER)
    prepared = tree.prepare_text("Q: 1+2\n")
    text = "think 3\nObservation:"
    ids = TOKENIZER.encode(text)
    tree.commit(
        prepared,
        sampled_ids=ids,
        logprobs=[-1.0] * len(ids),
        reply=said("assistant", "think 3\n"),
        finish_reason="stop",
        policy_version=0,
        temperature=1.0,
        max_tokens=9,
    )
    longer = tree.prepare_text(f"Q: 1+2\n{text} 3")
    assert longer.prompt_ids == [*prepared.prompt_ids, *ids, *TOKENIZER.encode(" 3")]
    assert longer.parent == 0
    without = tree.prepare_text("Q: 1+2\nthink 3\nResult: 3")
    assert TOKENIZER.decode(without.prompt_ids) == "Q: 1+2\nthink 3\nResult: 3"


def test_a_template_that_hides_the_last_message_cannot_continue_it() -> None:
    tree = EpisodeTree(TOKENIZER)
    with pytest.raises(RequestError):
        goes_on(tree, {"role": "assistant", "content": [{"type": "image_url"}]})
