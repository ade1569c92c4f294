import pytest

from swarm.protocol.errors import RequestError, UnsupportedParameter
from swarm.server.routes.chat_request import NEUTRAL, read_chat_body

USER = {"role": "user", "content": "hi"}


def read(**keys):
    return read_chat_body({"model": "m", "messages": [USER], **keys})


def test_everything_but_messages_and_tools_is_recorded_as_it_was_sent():
    body = read(temperature=0.5, user="u", metadata={"a": "b"}, my_own_key=[1], top_p=1, stop=None)
    assert body.call.requested == {
        "model": "m", "temperature": 0.5, "user": "u", "metadata": {"a": "b"}, "my_own_key": [1], "top_p": 1, "stop": None,
    }  # fmt: skip


def test_text_parts_are_joined_and_null_fields_removed():
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "é"}],
        },
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": []},
    ]
    got = read(messages=messages).call.messages
    assert got == [{"role": "system", "content": "aé"}, {"role": "assistant", "content": None}]


def test_the_smaller_of_the_two_token_limits_holds():
    assert read(max_tokens=9, max_completion_tokens=7).call.max_tokens == 7
    assert read().call.max_tokens is None


@pytest.mark.parametrize(("sent", "read_as"), [("x", ["x"]), (["x", "y"], ["x", "y"]), (None, [])])
def test_stop_is_a_string_or_a_list(sent, read_as):
    assert read(stop=sent).call.stop == read_as


@pytest.mark.parametrize("key", [key for key, neutral in NEUTRAL.items() if neutral])
def test_a_parameter_that_is_not_served_is_accepted_with_its_neutral_value(key):
    assert read(**{key: NEUTRAL[key][0]}).call.requested[key] == NEUTRAL[key][0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n", 2), ("n", True), ("top_p", 0.9), ("presence_penalty", 1), ("frequency_penalty", 0.1), ("logit_bias", {"1": 5}),
        ("response_format", {"type": "json_object"}), ("tool_choice", "required"), ("parallel_tool_calls", False),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}), ("functions", [{"name": "f"}]),
    ],
)  # fmt: skip
def test_a_parameter_that_would_change_the_answer_is_refused_by_name(key, value):
    with pytest.raises(UnsupportedParameter, match=key) as caught:
        read(**{key: value})
    assert key in caught.value.hint
    assert caught.value.details["parameter"] == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", "hot"), ("temperature", -1), ("temperature", float("nan")), ("temperature", True), ("max_tokens", 0),
        ("max_tokens", 1.5), ("max_completion_tokens", True), ("stop", [1]), ("stop", ""), ("stop", ["x"] * 17),
        ("stream", "yes"), ("stream_options", []), ("logprobs", 1), ("top_logprobs", 21), ("top_logprobs", 2), ("seed", "x"),
        ("tools", {}), ("messages", []), ("messages", "hi"), ("messages", ["hi"]),
    ],
)  # fmt: skip
def test_a_wrong_type_or_value_is_a_bad_request_that_names_the_key(key, value):
    with pytest.raises(RequestError, match=key) as caught:
        read(**{key: value})
    assert type(caught.value) is RequestError
    assert caught.value.hint


@pytest.mark.parametrize(
    "message",
    [
        {"role": "robot", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "assistant", "tool_calls": "f"},
    ],
)
def test_a_malformed_message_is_named_by_its_place(message):
    with pytest.raises(RequestError, match=r"messages\[1\]"):
        read(messages=[USER, message])


def test_a_part_that_is_not_text_is_refused():
    with pytest.raises(UnsupportedParameter, match="image_url"):
        read(
            messages=[
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
            ]
        )


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([{"type": "web_search"}], "web_search"),
        ([{"type": "function", "function": {}}], "name is missing"),
        ([{"type": "function", "function": {"name": "f"}}] * 2, "declared twice"),
    ],
)
def test_a_tool_must_be_a_function_with_its_own_name(tools, words):
    with pytest.raises(RequestError, match=words):
        read(tools=tools)
