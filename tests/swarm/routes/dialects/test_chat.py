from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from swarm.protocol.errors import RequestError
from swarm.server.routes.dialects.chat.reply import completion
from swarm.server.routes.dialects.chat.request import read_chat_body
from swarm.server.routes.dialects.chat.stream import ChunkStream
from swarm.server.service.calls import ChatDelta, ChatReply
from swarm.testing.answers import in_pieces, make_answer, make_reply, reply_variants

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "add"}}


def _read(**keys: Any) -> Any:
    return read_chat_body({"model": "m", "messages": [USER], **keys})


def test_every_sampling_value_is_read() -> None:
    sampling = _read(
        top_p=0.9, top_k=5, min_p=0.1, logit_bias={"7": -100}, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.2, min_tokens=2, stop_token_ids=[3], ignore_eos=True,
    ).call.sampling  # fmt: skip
    assert (sampling.top_p, sampling.top_k, sampling.min_p) == (0.9, 5, 0.1)
    assert sampling.logit_bias == {7: -100.0}
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1.0, -1.0)
    assert (sampling.repetition_penalty, sampling.min_tokens) == (1.2, 2)
    assert (sampling.stop_token_ids, sampling.ignore_eos) == ([3], True)


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "json_schema",
        ),
        ({"guided_regex": "a+"}, "regex"),
        ({"structured_outputs": {"choice": ["a", "b"]}}, "choice"),
        ({"structured_outputs": {"grammar": "start: /a/"}}, "lark"),
    ],
)
def test_a_constraint_becomes_a_grammar(keys: dict[str, Any], kind: str) -> None:
    grammar = _read(**keys).call.sampling.grammar
    assert grammar.kind == kind
    assert _read().call.sampling.grammar is None


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_tool_choice_words_are_kept(choice: str) -> None:
    assert _read(tools=[TOOL], tool_choice=choice).call.tool_choice == choice


def test_a_named_tool_must_be_declared() -> None:
    named = {"type": "function", "function": {"name": "add"}}
    assert _read(tools=[TOOL], tool_choice=named).call.tool_choice == {"name": "add"}
    with pytest.raises(RequestError, match="add"):
        _read(tool_choice=named)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"n": 0}, "n"), ({"n": True}, "n"), ({"top_p": 1.5}, "top_p"), ({"temperature": -1}, "temperature"), ({"temperature": 2.1}, "temperature"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"), ({"stop": [""]}, "stop"), ({"max_tokens": 0}, "max_tokens"),
        ({"repetition_penalty": 0}, "repetition_penalty"), ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "xml"}}, "response_format.type"), ({"top_logprobs": 3}, "top_logprobs"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "constraints"), ({"stream": 1}, "stream"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_name(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        _read(**keys)
    assert named in caught.value.message
    assert caught.value.hint


def test_unknown_parameters_are_tolerated_and_listed() -> None:
    call = _read(my_own=1, user="u", verbosity="low", another=2).call
    assert call.unknown == ["another", "my_own"]
    assert call.requested["my_own"] == 1


def test_a_whole_answer_has_every_choice() -> None:
    body = _read(n=2, logprobs=True, return_token_ids=True)
    whole = completion(body, make_answer(make_reply("a"), make_reply("b", index=1)), "m")
    assert [c["index"] for c in whole["choices"]] == [0, 1]
    assert [c["message"]["content"] for c in whole["choices"]] == ["a", "b"]
    assert whole["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
    assert whole["choices"][0]["token_ids"] == [4, 5, 6]
    assert whole["prompt_token_ids"] == [1, 2, 3]
    assert [t["bytes"] for t in whole["choices"][0]["logprobs"]["content"]] == [[97], [195], [169]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.sampled_from(reply_variants()),
    second=st.sampled_from(reply_variants()),
    data=st.data(),
)
def test_a_stream_of_two_choices_adds_up_to_the_whole_answer(
    events: Any, first: Any, second: Any, data: st.DataObject
) -> None:
    second = replace(second, index=1)
    body = _read(n=2, logprobs=True, return_token_ids=True, stream_options={"include_usage": True})
    stream = ChunkStream(body, "ep-1.0", "m")
    queues = [_pieces(first, data), _pieces(second, data)]
    raw = b""
    while any(queues):
        queue = data.draw(st.sampled_from([q for q in queues if q]))
        raw += stream.write(queue.pop(0))
    found = [chunk for _, chunk in events(raw)]
    assert found[-1] is None
    assert found[-2]["choices"] == []
    whole = completion(body, make_answer(first, second), "m")
    assert found[-2]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        got = _accumulate(found[:-2], choice["index"])
        assert got == {key: choice[key] for key in got}


def _accumulate(chunks: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """Build one choice as an SDK does."""
    message: dict[str, Any] = {}
    tokens: list[Any] = []
    ids: list[int] = []
    finish = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    for one in value:
                        made = message.setdefault("tool_calls", [])
                        assert one["index"] == len(made)
                        made.append({k: v for k, v in one.items() if k != "index"})
                else:
                    message[key] = message.get(key, "") + value
            tokens += (choice["logprobs"] or {}).get("content", [])
            ids += choice.get("token_ids", [])
            finish = choice["finish_reason"] or finish
    message["refusal"] = None
    if not message["content"] and "tool_calls" in message:
        message["content"] = None
    return {
        "message": message,
        "finish_reason": finish,
        "logprobs": {"content": tokens, "refusal": None},
        "token_ids": ids,
    }


def _pieces(whole: ChatReply, data: st.DataObject) -> list[ChatDelta]:
    def cuts(length: int) -> list[int]:
        return sorted(data.draw(st.lists(st.integers(0, length), max_size=3)))

    return in_pieces(whole, cuts, rest_in_final=data.draw(st.booleans()))


def test_thinking_is_counted_apart_whole_and_streamed(events: Any) -> None:
    body = _read(n=2, stream_options={"include_usage": True})
    first = make_reply("x", reasoning="hm", reasoning_tokens=2)
    answer = make_answer(first, replace(first, index=1))
    answer.reasoning_tokens = 4
    usage = completion(body, answer, "m")["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}
    stream = ChunkStream(body, "ep-1.0", "m")
    raw = b"".join(stream.write(ChatDelta(index=r.index, final=r)) for r in answer.choices)
    assert events(raw)[-2][1]["usage"] == usage


def test_a_stream_is_named_by_its_answer(events: Any) -> None:
    stream = ChunkStream(_read(), "ep-1.0", "m")
    raw = stream.write(ChatDelta(text="a", response_id="ep-1.7"))
    raw += stream.write(ChatDelta(final=make_reply("a"), response_id="ep-1.7"))
    assert {chunk["id"] for _, chunk in events(raw) if chunk} == {"chatcmpl-ep-1.7"}


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_thinking_that_is_sent_back_has_one_name(key: str) -> None:
    said = {"role": "assistant", "content": "ok", key: "hm"}
    call = _read(messages=[{"role": "user", "content": "x"}, said]).call
    assert call.messages[1] == {"role": "assistant", "content": "ok", "reasoning_content": "hm"}
