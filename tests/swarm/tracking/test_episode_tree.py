from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from swarm.protocol.errors import RequestError
from swarm.protocol.records import CallRecord
from swarm.server.model_files import resolve_model
from swarm.server.tracking.account import sampled_tokens
from swarm.server.tracking.episode_tree import EpisodeTree, PreparedPrompt
from swarm.server.tracking.merge import build_rows
from swarm.server.tracking.template import ChatTemplate
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.server.tracking.toolcalls import parse_reply, tool_parser

TOKENIZER = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
EOS = TOKENIZER.eos_ids[0]
TOOLS = [{"type": "function", "function": {"name": "calculator"}}]
Messages = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def scattered(text: str) -> list[int]:
    """Ids of the text letter by letter: a spelling that the tokenizer itself would not choose."""
    return [i for letter in text for i in TOKENIZER.encode(letter)]


def answer(
    tree: EpisodeTree,
    messages: Messages,
    text: str,
    *,
    tools: list[dict[str, Any]] | None = None,
    ended: bool = True,
    prepared: PreparedPrompt | None = None,
    finish_reason: str = "stop",
) -> CallRecord:
    """Prepare (unless done), pretend that the engine sampled ``text``, commit."""
    prepared = prepared or tree.prepare(messages, tools or [], {})
    ids = scattered(text) + [EOS] * ended
    parsed = parse_reply(tool_parser("expression"), text, prepared.tools, call_id=prepared.path)
    return tree.commit(
        prepared,
        sampled_ids=ids,
        logprobs=[-0.5] * len(ids),
        reply=parsed.message(),
        finish_reason=finish_reason if ended else "length",
        policy_version=3,
        temperature=1.0,
        max_tokens=16,
    )


def test_the_first_prompt_is_the_plain_rendering() -> None:
    messages = [user("Compute 1+2.")]
    prepared = EpisodeTree(TOKENIZER).prepare(messages, TOOLS, {})
    assert prepared.prompt_ids == TOKENIZER.encode(TOKENIZER.render(messages, TOOLS, {}))
    assert (prepared.parent, prepared.diverged, prepared.index_path) == (None, False, "0")


def test_the_next_turn_extends_the_captured_ids_and_does_not_double_the_end_token() -> None:
    tree = EpisodeTree(TOKENIZER)
    first = answer(tree, [user("Hi there")], "hello world")
    prepared = tree.prepare([user("Hi there"), first.reply, user("More")], [], {})
    tail = TOKENIZER.encode("\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n")
    assert prepared.prompt_ids == first.prompt_ids + first.sampled_ids + tail
    assert TOKENIZER.encode("hello world") != scattered("hello world")
    assert (prepared.parent, prepared.diverged, prepared.index_path) == (0, False, "0.0")


def test_after_a_truncated_answer_the_end_token_is_appended_unsampled() -> None:
    tree = EpisodeTree(TOKENIZER)
    first = answer(tree, [user("Hi")], "hel", ended=False)
    second = answer(tree, [user("Hi"), first.reply, user("Error.")], "ok")
    tail = TOKENIZER.encode(
        "<|im_end|>\n<|im_start|>user\nError.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert second.prompt_ids == first.prompt_ids + first.sampled_ids + tail
    rows, _ = build_rows(tree.calls)
    assert len(rows) == 1
    trained = [i for span in rows[0].spans for i in rows[0].ids[span.start : span.end]]
    assert trained == first.sampled_ids + second.sampled_ids
    assert (
        rows[0].ids.count(EOS) == trained.count(EOS) + 3
    )  # two user turns and the truncated answer


def test_tool_turns_merge_into_one_row_whatever_the_client_does_to_ids_and_nulls() -> None:
    tree = EpisodeTree(TOKENIZER)
    messages: Messages = [user("Compute 1+2+3+4.")]
    for text in (
        "<tool_call>1+2</tool_call>",
        "<tool_call>3+3</tool_call>",
        "<tool_call>6+4</tool_call>",
        "10",
    ):
        reply = dict(answer(tree, messages, text, tools=TOOLS).reply)
        assert bool(reply.get("tool_calls")) == text.startswith("<")
        reply["content"] = reply["content"] or ""
        for call in reply.get("tool_calls", []):
            call["id"] = "renamed"
            call["function"]["arguments"] = call["function"]["arguments"].replace(":", " : ")
        messages = [*messages, reply, {"role": "tool", "tool_call_id": "renamed", "content": "3"}]
    rows, _ = build_rows(tree.calls)
    assert tree.divergences == 0
    assert [row.call_indices for row in rows] == [[0, 1, 2, 3]]
    assert rows[0].ids == tree.calls[3].prompt_ids + tree.calls[3].sampled_ids


def test_interleaved_sub_agents_keep_their_own_chains() -> None:
    tree = EpisodeTree(TOKENIZER)
    planner, worker = [user("You plan.")], [user("You work.")]
    for turn in range(3):
        p, w = tree.prepare(planner, [], {}), tree.prepare(worker, [], {})
        w_call = answer(tree, worker, f"w{turn}", prepared=w)
        p_call = answer(tree, planner, f"p{turn}", prepared=p)
        planner = [*planner, p_call.reply, user(f"Worker says {w_call.reply['content']}")]
        worker = [*worker, w_call.reply, user("Go on")]
    rows, _ = build_rows(tree.calls)
    assert sorted(row.call_indices for row in rows) == [[0, 2, 4], [1, 3, 5]]
    assert tree.divergences == 0


def test_identical_prompts_are_branches_and_their_paths_do_not_depend_on_timing() -> None:
    def run(order: list[int]) -> tuple[list[str], list[list[int]]]:
        tree = EpisodeTree(TOKENIZER)
        prepared = [tree.prepare([user("Vote")], [], {}) for _ in range(3)]
        for k in order:
            answer(tree, [], f"vote {k}", prepared=prepared[k])
        return [p.path for p in prepared], [row.call_indices for row in build_rows(tree.calls).rows]

    paths, rows = run([0, 1, 2])
    assert rows == [[0], [1], [2]]
    assert len(set(paths)) == 3
    assert run([2, 0, 1])[0] == paths


def test_agents_in_lockstep_with_equal_answers_stay_separate_chains() -> None:
    tree = EpisodeTree(TOKENIZER)
    first = [tree.prepare([user("Vote")], [], {}) for _ in range(2)]
    replies = [answer(tree, [], "yes", prepared=p).reply for p in first]
    second = [tree.prepare([user("Vote"), reply, user("Why?")], [], {}) for reply in replies]
    assert [p.parent for p in second] == [0, 1]
    for prepared in second:
        answer(tree, [], "because", prepared=prepared)
    assert [row.call_indices for row in build_rows(tree.calls).rows] == [[0, 2], [1, 3]]


def test_tools_and_template_arguments_are_part_of_identity() -> None:
    tree = EpisodeTree(TOKENIZER)
    reply = answer(tree, [user("Hi")], "hello", tools=TOOLS).reply
    messages = [user("Hi"), reply, user("More")]
    assert tree.prepare(messages, TOOLS, {}).parent == 0
    other_tools = tree.prepare(messages, [], {})
    assert (other_tools.parent, other_tools.diverged) == (None, True)
    assert tree.prepare(messages, TOOLS, {"enable_thinking": False}).parent is None
    answer(tree, messages, "again", prepared=other_tools)
    assert len(build_rows(tree.calls).rows) == 2


@pytest.mark.parametrize("edit", ["reply", "before", "dropped"])
def test_history_that_the_client_changed_diverges_and_is_counted(edit: str) -> None:
    tree = EpisodeTree(TOKENIZER)
    system = {"role": "system", "content": "S"}
    reply = answer(tree, [system, user("Hi")], "hello ").reply
    messages = {
        "reply": [system, user("Hi"), {**reply, "content": "hello"}, user("More")],
        "before": [system, user("Hi!"), reply, user("More")],
        "dropped": [user("Hi"), reply, user("More")],
    }[edit]
    prepared = tree.prepare(messages, [], {})
    assert (prepared.parent, prepared.diverged, tree.divergences) == (None, True, 1)
    assert prepared.prompt_ids == TOKENIZER.encode(TOKENIZER.render(messages, [], {}))


def test_examples_that_the_client_wrote_itself_are_no_divergence() -> None:
    tree = EpisodeTree(TOKENIZER)
    shots = [user("1+1"), {"role": "assistant", "content": "2"}, user("2+2")]
    call = answer(tree, shots, "4")
    assert not tree.prepare([*shots, call.reply, user("3+3")], [], {}).diverged
    assert tree.divergences == 0


def test_empty_and_aborted_answers_never_become_parents() -> None:
    tree = EpisodeTree(TOKENIZER)
    empty = answer(tree, [user("Hi")], "", ended=False)
    after_empty = tree.prepare([user("Hi"), empty.reply, user("More")], [], {})
    aborted = answer(tree, [user("Ho")], "hal", finish_reason="abort")
    after_abort = tree.prepare([user("Ho"), aborted.reply, user("More")], [], {})
    assert (after_empty.parent, after_abort.parent) == (None, None)
    assert not after_empty.diverged
    assert empty.sampled_ids == []


def test_a_template_that_hides_the_history_falls_back_to_plain_rendering_and_says_so() -> None:
    source = "{% for m in messages %}[{{ m.role }}]{{ m.content[:5] }}<|im_end|>{% endfor %}"
    library = Tokenizer.from_file(str(resolve_model("builtin:tiny-calc") / "tokenizer.json"))
    tree = EpisodeTree(ChatTokenizer(library, ChatTemplate(source, {}), [EOS], "hermes"))
    reply = answer(tree, [user("Hi")], "hello").reply
    prepared = tree.prepare([user("Hi"), reply, user("More")], [], {})
    assert (prepared.parent, prepared.diverged) == (None, True)
    assert (
        TOKENIZER.decode(prepared.prompt_ids)
        == "[user]Hi<|im_end|>[assistant]hello<|im_end|>[user]More<|im_end|>"
    )


def test_a_template_that_strips_thoughts_from_history_still_continues_the_captured_ids() -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('|')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    library = Tokenizer.from_file(str(resolve_model("builtin:tiny-calc") / "tokenizer.json"))
    tree = EpisodeTree(ChatTokenizer(library, ChatTemplate(source, {}), [EOS], "hermes"))
    first = answer(tree, [user("Hi")], "thought|hello")
    second = answer(tree, [user("Hi"), first.reply, user("More")], "thought|bye")
    assert second.prompt_ids[: len(first.prompt_ids) + len(first.sampled_ids)] == (
        first.prompt_ids + first.sampled_ids
    )
    assert len(build_rows(tree.calls).rows) == 1


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x"},
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "user", "content": 3},
    ],
)
def test_messages_without_role_or_text_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        EpisodeTree(TOKENIZER).prepare([message], [], {})
    assert caught.value.hint


def test_text_parts_read_as_their_text() -> None:
    parts = [{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}]
    tree = EpisodeTree(TOKENIZER)
    reply = answer(tree, [user("Hi you")], "ok").reply
    assert tree.prepare([{"role": "user", "content": parts}, reply, user("?")], [], {}).parent == 0


def test_log_probabilities_must_match_the_sampled_tokens() -> None:
    tree = EpisodeTree(TOKENIZER)
    prepared = tree.prepare([user("Hi")], [], {})
    with pytest.raises(ValueError, match="2 sampled tokens came with 1"):
        tree.commit(
            prepared,
            sampled_ids=[5, 6],
            logprobs=[-1.0],
            reply={"role": "assistant", "content": "x"},
            finish_reason="stop",
            policy_version=0,
            temperature=1.0,
            max_tokens=4,
        )
    assert tree.calls == []


words = st.text(alphabet="ab 1é🙂<\n", max_size=6)
turns = st.lists(st.tuples(st.integers(0, 8), words, words, st.booleans()), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(turns)
def test_any_branching_conversation_extends_what_was_sampled_and_reads_like_the_template(
    plan: list[tuple[int, str, str, bool]],
) -> None:
    tree = EpisodeTree(TOKENIZER)
    conversations: list[Messages] = [[]]
    for pick, question, text, ended in plan:
        messages = [*conversations[pick % len(conversations)], user(question)]
        call = answer(tree, messages, text, ended=ended)
        assert TOKENIZER.decode(call.prompt_ids) == TOKENIZER.render(messages, [], {})
        if call.sampled_ids:
            conversations.append([*messages, call.reply])
    by_token, fates = build_rows(tree.calls)
    by_text, text_fates = build_rows(tree.calls, "text", token_bytes=TOKENIZER.token_bytes)
    assert tree.divergences == 0
    assert fates == text_fates
    for rows in (by_token, by_text):
        spans = [span for row in rows for span in row.spans]
        assert sum(span.end - span.start for span in spans) == sampled_tokens(tree.calls)
    # Fewer by text are possible: an answer that was cut is also a token prefix of its twin.
    assert len(by_text) <= len(by_token)
