from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.protocol.errors import EngineFailed, RequestError
from swarm.server.routes.dialects.responses.reply import response_of
from swarm.server.routes.dialects.responses.request import read_responses_body
from swarm.server.routes.dialects.responses.stream import ResponseStream
from swarm.server.service.calls import ChatDelta, ChatReply
from swarm.testing.answers import in_pieces, make_answer, make_reply, reply_variants, tool_call

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def _read(history: list[Any] | None = None, **keys: Any) -> Any:
    return read_responses_body({"model": "m", "input": "hi", **keys}, history or [])


def test_text_input_is_a_user_message_after_the_instructions() -> None:
    body = _read(instructions="be brief", max_output_tokens=9)
    assert body.call.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]
    assert (body.call.max_tokens, body.store, body.stream) == (9, True, False)


def test_the_items_of_one_turn_become_one_message() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
    ]  # fmt: skip
    messages = _read(input=items).call.messages
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
    assert (messages[1]["reasoning_content"], messages[1]["content"]) == ("hm", "so")
    assert [c["id"] for c in messages[1]["tool_calls"]] == ["c1", "c2"]
    assert [m["content"] for m in messages[2:]] == ["1", "2"]


def test_what_a_response_gave_out_can_be_sent_back_as_it_came() -> None:
    whole = response_of(
        _read(), make_answer(make_reply("so", reasoning="hm", calls=[tool_call(0)])), "m"
    )
    messages = _read(history=[{"role": "user", "content": "x"}, *whole["output"]]).call.messages
    assert messages[1] == {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "so",
        "tool_calls": [tool_call(0)],
    }
    assert messages[2] == {"role": "user", "content": "hi"}


def test_two_assistant_messages_in_a_row_stay_two() -> None:
    items = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [m["content"] for m in _read(input=items).call.messages] == ["a", "b"]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "content[0].type"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"tools": [{"type": "local_shell"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "schema"),
    ],
)
def test_a_wrong_request_is_refused_by_name(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        _read(**keys)
    assert named in caught.value.message


def test_a_schema_becomes_a_grammar() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    grammar = _read(text={"format": form}).call.sampling.grammar
    assert (grammar.kind, grammar.body) == ("json_schema", {"type": "object"})


def test_an_answer_cut_by_length_is_incomplete() -> None:
    whole = response_of(_read(), make_answer(make_reply("so", finish_reason="length")), "m")
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert whole["output"][0]["status"] == "incomplete"


def test_an_answer_of_nothing_is_still_a_message() -> None:
    whole = response_of(_read(), make_answer(make_reply("")), "m")
    assert [item["type"] for item in whole["output"]] == ["message"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=st.sampled_from(reply_variants()), data=st.data())
def test_a_stream_adds_up_to_the_whole_response(
    events: Any, whole: Any, data: st.DataObject
) -> None:
    body = _read(tools=[TOOL], stream=True)
    stream = ResponseStream(body, "ep-1.0", "m")
    found = events(b"".join(stream.write(delta) for delta in _pieces(whole, data)))
    expected = response_of(body, make_answer(whole), "m")
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    assert [name for name, _ in found[:2]] == ["response.created", "response.in_progress"]
    last_name, last = found[-1]
    assert last_name == f"response.{expected['status']}"
    expected["created_at"] = last["response"]["created_at"]
    assert last["response"] == expected
    _check_items(found, expected)


def _check_items(found: list[tuple[str, Any]], whole: dict[str, Any]) -> None:
    """Every item is added, grown and done in order, and the deltas are its text."""
    texts: dict[int, str] = {}
    for name, data in found:
        if name == "response.output_item.added":
            assert data["output_index"] == len(texts)
            texts[data["output_index"]] = ""
        elif name.endswith(".delta"):
            texts[data["output_index"]] += data["delta"]
    assert len(texts) == len(whole["output"])
    for index, item in enumerate(whole["output"]):
        said = item["arguments"] if item["type"] == "function_call" else _text(item)
        assert texts[index] == said


def _text(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in item["content"])


def test_a_stream_that_fails_says_so_in_its_own_event(events: Any) -> None:
    stream = ResponseStream(_read(), "ep-1.0", "m")
    name, data = events(stream.failed(EngineFailed("gone")))[0]
    assert name == "response.failed"
    assert data["response"]["error"]["message"] == "gone"


def _pieces(whole: ChatReply, data: st.DataObject) -> list[ChatDelta]:
    def cuts(length: int) -> list[int]:
        return sorted(data.draw(st.lists(st.integers(0, length), max_size=3)))

    return in_pieces(whole, cuts, rest_in_final=data.draw(st.booleans()))
