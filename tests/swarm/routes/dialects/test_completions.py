from __future__ import annotations

from typing import Any

import pytest

from swarm.protocol.errors import RequestError
from swarm.server.routes.dialects.completions.reply import CompletionStream, completion
from swarm.server.routes.dialects.completions.request import read_completions_body
from swarm.server.service.calls import ChatDelta
from swarm.testing.answers import make_answer, make_reply


def _read(**keys: Any) -> Any:
    return read_completions_body({"model": "m", "prompt": "hi", **keys})


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("hi", ["hi"]),
        ([1, 2], [[1, 2]]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_a_prompt_is_text_or_ids_or_a_list_of_them(prompt: Any, read: Any) -> None:
    assert [call.prompt for call in _read(prompt=prompt).calls] == read


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"prompt": []}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": [True]}, "prompt"), ({"prompt": [[[1]]]}, "prompt"),
        ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"prompt": ["x"] * 65}, "65 prompts"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_by_name(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        _read(**keys)
    assert named in caught.value.message


def test_choices_are_numbered_over_all_prompts() -> None:
    body = _read(prompt=["a", "b"], n=2, logprobs=1)
    answers = [
        make_answer(make_reply("x"), make_reply("y", index=1)),
        make_answer(make_reply("z"), make_reply("w", index=1)),
    ]
    whole = completion(body, answers, "m")
    assert [(c["index"], c["text"]) for c in whole["choices"]] == [
        (0, "x"),
        (1, "y"),
        (2, "z"),
        (3, "w"),
    ]
    assert whole["usage"]["total_tokens"] == 26
    assert whole["choices"][0]["logprobs"]["text_offset"] == [0, 1, 2]


def test_a_stream_adds_up_to_the_whole_answer(events: Any) -> None:
    body = _read(prompt=["a", "b"], stream_options={"include_usage": True})
    stream = CompletionStream(body, "ep-1.0", "m")
    first, second = make_reply("hello"), make_reply("yes")
    raw = stream.write(0, ChatDelta(text="hel")) + stream.write(1, ChatDelta(final=second))
    raw += stream.write(0, ChatDelta(text="lo", final=first))
    found = [chunk for _, chunk in events(raw)]
    assert found[-1] is None
    texts = {0: "", 1: ""}
    for chunk in found[:-2]:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "hello", 1: "yes"}
    assert (
        found[-2]["usage"]
        == completion(body, [make_answer(first), make_answer(second)], "m")["usage"]
    )


def test_tokens_without_text_of_their_own_are_streamed_too_each_once(events: Any) -> None:
    body = _read(return_token_ids=True)
    stream = CompletionStream(body, "ep-1.0", "m")
    reply = make_reply("é")
    raw = stream.write(0, ChatDelta(token_ids=[4]))
    raw += stream.write(0, ChatDelta(text="é", token_ids=[5]))
    raw += stream.write(0, ChatDelta(final=reply))
    choices = [chunk["choices"][0] for _, chunk in events(raw) if chunk is not None]
    assert [i for choice in choices for i in choice["token_ids"]] == reply.token_ids
    assert "".join(choice["text"] for choice in choices) == "é"


def test_an_echo_comes_first_and_once_for_each_choice(events: Any) -> None:
    body = _read(echo=True, n=2)
    replies = [make_reply("x", prompt_text="hi", index=index) for index in range(2)]
    whole = completion(body, [make_answer(*replies)], "m")
    assert [choice["text"] for choice in whole["choices"]] == ["hix", "hix"]
    stream = CompletionStream(body, "ep-1.0", "m")
    deltas = [ChatDelta(index=0, text="x", prompt_text="hi", response_id="ep-1.4")]
    deltas += [ChatDelta(index=r.index, prompt_text="hi", final=r) for r in replies]
    found = [chunk for _, chunk in events(b"".join(stream.write(0, d) for d in deltas)) if chunk]
    texts = ["", ""]
    for chunk in found:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == ["hix", "hix"]
    assert {chunk["id"] for chunk in found} == {"cmpl-ep-1.4"}
