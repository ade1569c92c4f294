from __future__ import annotations

import json
from typing import Any

import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.tracking.toolcalls import parse_reply, tool_parser

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "calculator"}},
    {"type": "function", "function": {"name": "search"}},
]


def _parse(name: str, text: str, tools: list[dict[str, Any]] = TOOLS) -> dict[str, Any]:
    return parse_reply(tool_parser(name), text, tools, call_id="call-7").message()


def _calls(message: dict[str, Any]) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in message.get("tool_calls", [])]
    return [(f["name"], json.loads(f["arguments"])) for f in functions]


def test_an_expression_calls_the_first_declared_tool() -> None:
    message = _parse("expression", "<tool_call>37+48</tool_call>")
    assert message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call-7-0",
                "type": "function",
                "function": {"name": "calculator", "arguments": '{"expression":"37+48"}'},
            }
        ],
    }


@pytest.mark.parametrize(
    "text",
    [
        "85",
        "",
        "<tool_call>37+48",
        "37+48</tool_call>",
        "so <tool_call>1+2</tool_call>",
        "<tool_call>1<tool_call>2</tool_call>",
        "<tool_call>",
    ],
)
def test_an_answer_that_is_not_one_whole_expression_stays_text(text: str) -> None:
    assert _parse("expression", text) == {"role": "assistant", "content": text}


@pytest.mark.parametrize("name", ["expression", "hermes", "json"])
def test_without_declared_tools_everything_is_text(name: str) -> None:
    text = '<tool_call>{"name": "calculator", "arguments": {}}</tool_call>'
    assert _parse(name, text, []) == {"role": "assistant", "content": text}


def test_hermes_finds_several_calls_and_keeps_the_text_around_them() -> None:
    text = (
        'First.\n<tool_call>\n{"name": "search", "arguments": {"q": "é {nested}"}}\n</tool_call>\n'
        '<tool_call>{"name": "calculator", "arguments": {"a": {"b": 1}}}</tool_call> Done.'
    )
    message = _parse("hermes", text)
    assert _calls(message) == [("search", {"q": "é {nested}"}), ("calculator", {"a": {"b": 1}})]
    assert message["content"].startswith("First.")
    assert message["content"].endswith("Done.")
    assert [c["id"] for c in message["tool_calls"]] == ["call-7-0", "call-7-1"]


def test_a_hermes_call_whose_arguments_do_not_parse_stays_text_beside_one_that_does() -> None:
    bad = '<tool_call>{"name": "search", "arguments": {"q": }}</tool_call>'
    message = _parse("hermes", bad + '<tool_call>{"name": "search", "arguments": {}}</tool_call>')
    assert _calls(message) == [("search", {})]
    assert message["content"] == bad
    assert _parse("hermes", bad) == {"role": "assistant", "content": bad}


@pytest.mark.parametrize("arguments", ["[1]", "3", '"no json"'])
def test_arguments_that_are_not_an_object_are_no_call(arguments: str) -> None:
    text = f'<tool_call>{{"name": "search", "arguments": {arguments}}}</tool_call>'
    assert _parse("hermes", text)["content"] == text


def test_json_takes_one_call_or_a_list_of_declared_tools() -> None:
    one = _parse("json", ' {"name": "search", "parameters": {"q": "x"}} ')
    assert _calls(one) == [("search", {"q": "x"})]
    two = _parse(
        "json", '[{"name": "search", "arguments": {}}, {"name": "calculator", "arguments": "{}"}]'
    )
    assert _calls(two) == [("search", {}), ("calculator", {})]


@pytest.mark.parametrize(
    "text", ['{"name": "rm", "arguments": {}}', '{"answer": 3}', "[]", "3", "no"]
)
def test_json_that_is_no_call_of_a_declared_tool_stays_text(text: str) -> None:
    assert _parse("json", text) == {"role": "assistant", "content": text}


def test_an_unknown_parser_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError) as caught:
        tool_parser("xml")
    assert "'hermes'" in caught.value.hint
