"""Each rule of the episode guard on single answers: what it finds, and what it must leave alone."""

import json
import random
import shutil

import pytest

from swarm.protocol.config import GuardConfig
from swarm.protocol.records import CallRecord
from swarm.server.model_files import resolve_model
from swarm.server.service.guarding.loops import Loop, longest_loop
from swarm.server.service.guarding.rules import RULES
from swarm.server.tracking.tokenizer import ChatTokenizer

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
PLAIN = "The sum of both numbers is 12, which I found by adding them one after the other."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """The tiny model's, with a template that knows thinking."""
    folder = tmp_path_factory.mktemp("models") / "thinker"
    shutil.copytree(resolve_model("builtin:tiny-calc"), folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text("utf-8") + "{{ '<think>' if open }}", "utf-8")
    return ChatTokenizer.from_folder(folder)


def spoke(tokenizer: ChatTokenizer, text: str, prompt: str = "", **fields: object) -> set[str]:
    """Rules that speak on an answer of this text."""
    values = {"reply": {"role": "assistant", "content": text}, "finish_reason": "stop", **fields}
    ids = tokenizer.encode(text)
    call = CallRecord.model_validate(
        {"index": 0, "policy_version": 0, "messages": [], "prompt_ids": tokenizer.encode(prompt)}
        | {"sampled_ids": [*ids, tokenizer.eos_ids[0]], "logprobs": [0.0] * (len(ids) + 1)}
        | {"temperature": 1.0, "max_tokens": 999, **values}
    )
    return {name for name, rule in RULES.items() if rule(call, tokenizer, GuardConfig())}


def tool_call(name: str, arguments: str) -> dict:
    return {
        "tools": TOOLS,
        "reply": {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}],
        },
    }


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([], Loop(0, 0)),
        ([1, 2, 3], Loop(0, 0)),
        ([7] * 10, Loop(1, 10)),
        ([1, 2, 3] * 5, Loop(3, 15)),
        ([9, 8, *[1, 2, 3] * 5, 4, 5], Loop(3, 15)),
        ([1, 2, 3, 4, 1, 2, 3, 4, 5] * 4, Loop(9, 36)),  # a piece that repeats within itself
        (list(range(50)), Loop(0, 0)),
        ([*range(50), *range(50)], Loop(50, 100)),
    ],
)
def test_longest_loop_is_found_with_its_period(ids: list[int], found: Loop):
    assert longest_loop(ids) == found


@pytest.mark.parametrize("seed", range(40))
def test_loop_of_any_length_is_found_between_other_tokens(seed: int):
    rng = random.Random(seed)
    piece = [rng.randrange(1000) for _ in range(rng.randint(2, 40))]
    repeats = rng.randint(4, 9)
    head, tail = ([rng.randrange(1000, 2000) for _ in range(rng.randint(0, 60))] for _ in "ab")
    found = longest_loop([*head, *piece * repeats, *tail], 4)
    assert found.tokens >= len(piece) * repeats
    assert len(piece) % found.period == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_tokens_of_a_small_vocabulary_are_no_loop(seed: int):
    rng = random.Random(seed)
    assert longest_loop([rng.randrange(8) for _ in range(600)], 4).tokens < 64


def test_plain_answer_is_found_by_no_rule(tokenizer):
    assert spoke(tokenizer, PLAIN, tools=TOOLS) == set()


def test_answer_that_says_the_same_over_and_over_is_a_loop(tokenizer):
    assert spoke(tokenizer, "Wait, I add them again. " * 12) == {"loop"}


def test_list_with_changing_numbers_is_no_loop(tokenizer):
    text = "\n".join(f"Step {n}: {n * 7} and {n * 13} make {n * 20}." for n in range(10, 40))
    assert "loop" not in spoke(tokenizer, text)


def test_three_repetitions_of_a_phrase_are_no_loop(tokenizer):
    assert spoke(tokenizer, "Let me check that once more, carefully. " * 3) == set()


@pytest.mark.parametrize("text", ["12<|im_start|>user\nthanks", "so <|endoftext|> it is"])
def test_control_token_in_the_text_is_found(tokenizer, text: str):
    assert spoke(tokenizer, text) == {"special_tokens"}


def test_marks_of_tool_calls_and_of_thinking_are_no_stray_control_tokens(tokenizer):
    text = "<think>add</think><tool_call>1+2</tool_call>"
    assert "special_tokens" not in spoke(tokenizer, text)


@pytest.mark.parametrize(
    ("prompt", "text", "broken"),
    [
        ("", "<think>hm</think>12", False),
        ("", "<think>hm 12", True),
        ("", "hm</think>12", True),
        ("", "<think>a</think><think>b</think>12", False),
        ("", "<think>a<think>b</think>12", True),
        ("", "<think>a</think></think>12", True),
        ("<think>", "hm</think>12", False),
        ("<think>", "hm, 12", True),
    ],
)
def test_thinking_must_pair_up_whoever_opened_it(tokenizer, prompt: str, text: str, broken: bool):
    assert ("unpaired_thinking" in spoke(tokenizer, text, prompt)) is broken


def test_thinking_that_was_cut_off_is_not_called_unpaired(tokenizer):
    assert spoke(tokenizer, "<think>hm", finish_reason="length") == set()


def test_model_without_thinking_has_no_unpaired_thinking():
    plain = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc"))
    assert spoke(plain, "<think>hm") == set()


@pytest.mark.parametrize(
    ("name", "arguments", "broken"),
    [
        ("add", '{"a": 1}', False),
        ("subtract", '{"a": 1}', True),
        ("add", "[1, 2]", True),
        ("add", "{1", True),
        ("add", json.dumps({"text": "<tool_call>"}), False),
    ],
)
def test_tool_call_must_be_readable_and_offered(tokenizer, name, arguments, broken):
    found = spoke(tokenizer, "x", **tool_call(name, arguments))
    assert ("broken_tool_calls" in found) is broken


def test_call_that_could_not_be_read_is_left_in_the_text_and_found(tokenizer):
    assert spoke(tokenizer, '<tool_call>{"name": </tool_call>', tools=TOOLS) == {
        "broken_tool_calls"
    }
    assert spoke(tokenizer, "<tool_call>1+2</tool_call>") == set()  # no tools, no calls
