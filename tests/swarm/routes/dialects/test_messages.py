from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.protocol.errors import EpisodeGone, QueueFull, RequestError
from swarm.server.routes.dialects.messages.errors import envelope, error_event
from swarm.server.routes.dialects.messages.reply import message_of
from swarm.server.routes.dialects.messages.request import read_messages_body
from swarm.server.routes.dialects.messages.stream import MessageStream
from swarm.server.service.calls import ChatDelta, ChatReply
from swarm.testing.answers import in_pieces, make_answer, make_reply, reply_variants, tool_call

USER = {"role": "user", "content": "hi"}


def _read(**keys: Any) -> Any:
    return read_messages_body({"model": "m", "max_tokens": 9, "messages": [USER], **keys})


def test_a_plain_request_becomes_a_call() -> None:
    body = _read(system="be brief", temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["X"])
    assert body.call.messages == [{"role": "system", "content": "be brief"}, USER]
    assert (body.call.max_tokens, body.call.temperature, body.call.stop) == (9, 0.5, ["X"])
    assert (body.call.sampling.top_p, body.call.sampling.top_k) == (0.9, 5)
    assert not body.stream
    assert body.call.dialect == "messages"


def test_system_blocks_are_joined_and_cache_marks_change_nothing() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}},
    ]
    assert _read(system=blocks).call.messages[0] == {"role": "system", "content": "ab"}


def test_tool_use_and_its_results_come_in_order() -> None:
    turns = [
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "one moment"},
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "2"}],
                },
                {"type": "text", "text": "and?"},
            ],
        },
    ]
    messages = _read(messages=turns).call.messages
    assert messages[1] == {
        "role": "assistant",
        "content": "one moment",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
        ],
    }
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "t1", "content": "2"},
        {"role": "user", "content": "and?"},
    ]


def test_tools_and_the_choice_among_them() -> None:
    tool = {"name": "add", "description": "adds", "input_schema": {"type": "object"}}
    forced = {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
    call_ = _read(tools=[tool], tool_choice=forced).call
    assert call_.tools == [
        {
            "type": "function",
            "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}},
        }
    ]
    assert call_.tool_choice == {"name": "add"}
    assert not call_.parallel_tool_calls
    assert _read(tools=[tool], tool_choice={"type": "any"}).call.tool_choice == "required"


def test_what_the_server_does_not_know_is_listed_and_what_changes_nothing_is_not() -> None:
    call_ = _read(metadata={"user_id": "u"}, service_tier="auto", brand_new=1).call
    assert call_.unknown == ["brand_new"]
    assert call_.requested["brand_new"] == 1


@pytest.mark.parametrize("kind", ["enabled", "disabled"])
def test_thinking_is_told_to_the_template_only_when_it_was_asked_for(kind: str) -> None:
    told = _read(thinking={"type": kind, "budget_tokens": 1024}).call.template_kwargs
    assert told == {"enable_thinking": kind == "enabled"}
    assert _read().call.template_kwargs == {}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content[0].type"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"temperature": 2}, "temperature"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "twice"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ],
)
def test_a_wrong_request_is_refused_by_name(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        _read(**keys)
    assert named in caught.value.message
    assert caught.value.hint


def test_counting_needs_no_max_tokens() -> None:
    body = read_messages_body({"model": "m", "messages": [USER]}, counting=True)
    assert body.call.max_tokens is None


def test_a_message_has_its_blocks_in_order_and_says_how_it_ended() -> None:
    whole = message_of(make_answer(make_reply("so", reasoning="hm", calls=[tool_call(0)])), "m")
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
    assert whole["content"][2]["input"] == {"a": 0}
    assert (whole["stop_reason"], whole["usage"]["input_tokens"]) == ("tool_use", 7)
    stopped = message_of(make_answer(make_reply("so", stop_reason="X")), "m")
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "X")
    cut = message_of(make_answer(make_reply("so", finish_reason="length")), "m")
    assert cut["stop_reason"] == "max_tokens"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=st.sampled_from(reply_variants()), data=st.data())
def test_a_stream_adds_up_to_the_whole_message(
    events: Any, whole: Any, data: st.DataObject
) -> None:
    stream = MessageStream("ep-1.0", "m")
    raw = b"".join(stream.write(delta) for delta in _pieces(whole, data))
    got = _accumulate(events(raw))
    assert got == message_of(make_answer(whole), "m")


def _accumulate(found: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build the message as an SDK does, and check the grammar on the way."""
    names = [name for name, data in found]
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    assert all(name == data["type"] for name, data in found)
    message = found[0][1]["message"]
    open_index = None
    partial = ""
    for name, data in found[1:]:
        if name == "content_block_start":
            assert open_index is None
            assert data["index"] == len(message["content"])
            open_index, partial = data["index"], ""
            message["content"].append(data["content_block"])
        elif name == "content_block_delta":
            assert data["index"] == open_index
            block, delta = message["content"][-1], data["delta"]
            if delta["type"] == "input_json_delta":
                partial += delta["partial_json"]
            else:
                key = delta["type"].removesuffix("_delta")
                block[key] = block.get(key, "") + delta[key]
        elif name == "content_block_stop":
            assert data["index"] == open_index
            if partial:
                message["content"][-1]["input"] = json.loads(partial)
            open_index = None
        elif name == "message_delta":
            assert open_index is None
            message |= data["delta"]
            message["usage"] |= data["usage"]
    return message


def test_errors_have_the_types_that_sdks_know() -> None:
    full = envelope(QueueFull("busy", hint="later"), request_id="req-1")
    assert full["error"]["type"] == "rate_limit_error"
    assert full["request_id"] == "req-1"
    assert "later" in full["error"]["message"]
    gone = envelope(EpisodeGone("over"))
    assert (gone["type"], gone["error"]["type"]) == ("error", "invalid_request_error")
    assert error_event(EpisodeGone("over")).startswith(b"event: error\n")


def _pieces(whole: ChatReply, data: st.DataObject) -> list[ChatDelta]:
    def cuts(length: int) -> list[int]:
        return sorted(data.draw(st.lists(st.integers(0, length), max_size=3)))

    return in_pieces(whole, cuts, rest_in_final=data.draw(st.booleans()))
