"""The shipped tiny models: what their makers wrote is what their templates, tokenizers and parsers read."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from swarm.server.model_files import resolve_model
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.server.tracking.toolcalls import parse_reply, tool_parser
from swarm.tasks import calculator
from swarm.tasks.tiny_model import demos, sentence_tokenizer
from swarm.tasks.tiny_model.demos import CHATML, Dialect, Segment

MODELS = {"builtin:tiny-calc": CHATML, "builtin:tiny-calc-qwen": sentence_tokenizer.DIALECT}


@pytest.fixture(params=MODELS)
def shipped(request: pytest.FixtureRequest) -> tuple[ChatTokenizer, Dialect]:
    return ChatTokenizer.from_folder(resolve_model(request.param)), MODELS[request.param]


def transcript(segments: list[Segment], dialect: Dialect) -> list[dict[str, Any]]:
    """The messages of a demo, as an agent would keep them."""
    expression = segments[1].text.removesuffix("." + dialect.turn)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": demos.SYSTEM},
        {"role": "user", "content": f"Compute {expression}."},
    ]
    before, after = dialect.call
    for segment in segments[2:]:
        text = segment.text.removesuffix(dialect.end)
        if not segment.answer:
            result = text.removeprefix(dialect.result).removesuffix(dialect.turn)
            messages.append({"role": "tool", "content": result})
        elif text.startswith(before):
            arguments = {"expression": text.removeprefix(before).removesuffix(after)}
            call = {"type": "function", "function": {"name": "calculator", "arguments": arguments}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        else:
            messages.append({"role": "assistant", "content": text})
    return messages


def test_the_demonstrations_are_what_the_template_writes(
    shipped: tuple[ChatTokenizer, Dialect],
) -> None:
    tokenizer, dialect = shipped
    rng = random.Random(5)
    for _ in range(20):
        segments = demos.draw_demo(rng, mental=0.2, slip=0.1, dialect=dialect)
        messages = transcript(segments, dialect)
        text = "".join(segment.text for segment in segments)
        written = tokenizer.render(messages, calculator.TOOLS, {}, add_generation_prompt=False)
        assert written.rstrip("\n") == text
        asked = tokenizer.render(messages[:2], calculator.TOOLS, {})
        assert text.startswith(asked)


def test_a_demonstrated_tool_call_is_parsed_back(shipped: tuple[ChatTokenizer, Dialect]) -> None:
    tokenizer, dialect = shipped
    before, after = dialect.call
    parser = tool_parser(tokenizer.tool_parser)
    reply = parse_reply(parser, f"{before}85+25{after}", calculator.TOOLS, call_id="c")
    (call,) = reply.tool_calls
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "calculator",
        {"expression": "85+25"},
    )


def test_any_text_survives_the_tokenizer(shipped: tuple[ChatTokenizer, Dialect]) -> None:
    tokenizer, _ = shipped
    for text in ("Ünïcödé 漢字 \U0001f600", " two  spaces ", "\t\r\n", "<0x41> <", "12,345.6e-7"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.token_bytes(i) for i in ids).decode() == text
        stream = tokenizer.stream()
        assert "".join(stream.push([i]) for i in ids) + stream.finish() == text


def test_the_two_models_share_neither_ids_nor_template_nor_parser() -> None:
    first, second = (ChatTokenizer.from_folder(resolve_model(name)) for name in MODELS)
    messages = calculator.question(calculator.held_out(1)[0])
    assert first.render(messages, calculator.TOOLS, {}) != second.render(
        messages, calculator.TOOLS, {}
    )
    assert first.encode("Compute 37+48.") != second.encode("Compute 37+48.")
    assert first.tool_parser != second.tool_parser
    assert first.eos_texts != second.eos_texts


@pytest.mark.filterwarnings("default")  # the other library's own warnings are not ours to fail on
def test_the_second_tokenizer_and_template_read_the_same_in_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    folder = resolve_model("builtin:tiny-calc-qwen")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = ChatTokenizer.from_folder(folder)
    rng = random.Random(7)
    for _ in range(5):
        dialect = sentence_tokenizer.DIALECT
        segments = demos.draw_demo(rng, mental=0.2, slip=0.0, dialect=dialect)
        messages = transcript(segments, dialect)
        text = ours.render(messages, calculator.TOOLS, {})
        chat = theirs.apply_chat_template(
            messages, tools=calculator.TOOLS, tokenize=False, add_generation_prompt=True
        )
        assert chat == text
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text)


def test_the_second_template_refuses_an_unknown_role() -> None:
    tokenizer = ChatTokenizer.from_folder(resolve_model("builtin:tiny-calc-qwen"))
    with pytest.raises(Exception, match="unknown role critic"):
        tokenizer.render([{"role": "critic", "content": "no"}], [], {})
