from __future__ import annotations

import json
from typing import Any

import pytest

from swarm.protocol.errors import RequestError
from swarm.server.routes.dialects.responses.reply import response_of
from swarm.server.routes.dialects.responses.request import read_responses_body
from swarm.server.routes.dialects.responses.stream import ResponseStream
from swarm.server.service.calls import ChatDelta
from swarm.testing.answers import make_answer, make_reply, tool_call

CUSTOM = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark"}}
SPAWN = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "agents", "description": "d", "tools": [SPAWN, CUSTOM]}
HOSTED = {"type": "web_search_preview_2025_03_11", "external_web_access": True}


def _read(**keys: Any) -> Any:
    return read_responses_body({"model": "m", "input": "hi", **keys}, [])


def test_the_model_sees_functions_only_and_calls_go_out_as_they_were_declared() -> None:
    body = _read(tools=[SPACE, CUSTOM])
    names = [tool["function"]["name"] for tool in body.call.tools]
    assert names == ["agents.spawn", "agents.patch", "patch"]
    calls = [
        tool_call(0, "agents.spawn", {"task": "x"}),
        tool_call(1, "patch", {"input": "*** é"}),
        tool_call(2, "agents.patch", {"file": "a"}),
    ]
    output = response_of(body, make_answer(make_reply(calls=calls)), "m")["output"]
    told = [(item["type"], item.get("namespace"), item["name"]) for item in output]
    assert told == [
        ("function_call", "agents", "spawn"),
        ("custom_tool_call", None, "patch"),
        ("custom_tool_call", "agents", "patch"),
    ]
    assert output[1]["input"] == "*** é"
    assert json.loads(output[2]["input"]) == {"file": "a"}


def test_such_calls_come_back_as_the_message_that_was_sampled() -> None:
    body = _read(tools=[SPACE, CUSTOM])
    calls = [tool_call(0, "agents.spawn", {"task": "x"}), tool_call(1, "patch", {"input": "p"})]
    output = response_of(body, make_answer(make_reply("so", calls=calls)), "m")["output"]
    done = {"type": "custom_tool_call_output", "call_id": "call-0-1", "output": "ok"}
    messages = _read(tools=[SPACE, CUSTOM], input=[*output, done]).call.messages
    sent_back = messages[0]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in sent_back] == [
        {"task": "x"},
        {"input": "p"},
    ]
    assert [call["function"]["name"] for call in sent_back] == ["agents.spawn", "patch"]
    assert messages[1] == {"role": "tool", "tool_call_id": "call-0-1", "content": "ok"}


def test_a_streamed_custom_call_has_its_own_events_and_the_same_item(events: Any) -> None:
    body = _read(tools=[CUSTOM])
    reply = make_reply(calls=[tool_call(0, "patch", {"input": "p"})])
    stream = ResponseStream(body, "r", "m")
    told = events(stream.write(ChatDelta(final=reply)))
    kinds = [kind for kind, _ in told]
    assert kinds[2:6] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]
    assert told[2][1]["item"]["input"] == ""
    assert told[3][1]["delta"] == told[4][1]["input"] == "p"
    assert told[5][1]["item"] == stream.response["output"][0]


def test_tools_that_run_elsewhere_are_left_out_and_listed() -> None:
    call = _read(tools=[HOSTED, SPAWN]).call
    assert [tool["function"]["name"] for tool in call.tools] == ["spawn"]
    assert "tools[0].type: web_search_preview_2025_03_11" in call.unknown


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        ([{"type": "namespace", "name": "a", "tools": [SPACE]}], "tools[0].tools[0].type"),
        ([{"type": "namespace", "tools": [SPAWN]}], "tools[0].name"),
        ([{"type": "custom"}], "tools[0].name"),
        ([CUSTOM, CUSTOM], "tools[1]"),
    ],
)
def test_a_malformed_tool_is_refused_by_name(tools: list[Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        _read(tools=tools)
    assert named in caught.value.message


def test_a_tool_of_a_namespace_can_be_chosen() -> None:
    choice = {"type": "function", "namespace": "agents", "name": "spawn"}
    assert _read(tools=[SPACE], tool_choice=choice).call.tool_choice == {"name": "agents.spawn"}
