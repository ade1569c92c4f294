"""A picture in each dialect, and what each refuses: read without a server."""

import base64

import pytest

from swarm.protocol.errors import RequestError, UnsupportedParameter
from swarm.server.pictures.intake import Album, Intake
from swarm.server.routes.dialects.chat.request import read_chat_body
from swarm.server.routes.dialects.messages.request import read_messages_body
from swarm.server.routes.dialects.responses.request import read_responses_body
from swarm.testing.pictured_model import png

DATA = base64.b64encode(png(255)).decode()
URL = f"data:image/png;base64,{DATA}"
TEXT = {"type": "text", "text": "see "}
CHAT = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
INPUT = {"type": "input_image", "image_url": URL, "detail": "high"}
SOURCE = {"type": "base64", "media_type": "image/jpeg", "data": DATA}
BLOCK = {"type": "image", "source": SOURCE, "cache_control": {"type": "ephemeral"}}


def chat(content, role="user", intake=None):
    message = {"role": role, "content": content, "tool_call_id": "t"}
    return read_chat_body({"messages": [message]}, intake).call


def responses(*items, intake=None):
    return read_responses_body({"input": list(items)}, [], intake).call


def messages(content, role="user", intake=None):
    body = {"max_tokens": 9, "messages": [{"role": role, "content": content}]}
    return read_messages_body(body, intake).call


def item(content, role="user"):
    return {"type": "message", "role": role, "content": content}


def result(content):
    return [{"type": "tool_result", "tool_use_id": "t", "content": content}]


def output(content):
    return {"type": "function_call_output", "call_id": "t", "output": content}


SEEN = {
    "chat": lambda i: chat([TEXT, CHAT], intake=i),
    "chat, a bare url": lambda i: chat([TEXT, {"type": "image_url", "image_url": URL}], intake=i),
    "chat, of a tool": lambda i: chat([TEXT, CHAT], "tool", i),
    "responses": lambda i: responses(
        item([{"type": "input_text", "text": "see "}, INPUT]), intake=i
    ),
    "responses, of a tool": lambda i: responses(output(["see ", INPUT]), intake=i),
    "messages": lambda i: messages([TEXT, BLOCK], intake=i),
    "messages, of a tool": lambda i: messages(result([TEXT, BLOCK]), intake=i),
}


@pytest.mark.parametrize("read", SEEN.values(), ids=SEEN)
def test_every_dialect_gives_the_same_content(read):
    call = read(Intake(Album()))
    (message,) = call.messages
    text, picture = message["content"]
    assert text == TEXT
    assert (picture["type"], picture["media_type"]) == ("image", "image/png")
    assert call.pictures[picture["sha256"]].data == png(255)
    assert DATA not in str(message)


def test_how_closely_to_look_is_tolerated_and_listed():
    first, second = (SEEN[name](Intake(Album())) for name in ("chat", "responses"))
    assert first.unknown == ["messages[0].content[1].image_url.detail"]
    assert second.unknown == ["input[0].content[1].detail"]


@pytest.mark.parametrize("read", SEEN.values(), ids=SEEN)
def test_a_model_that_reads_text_only_refuses_each_of_them_by_name(read):
    with pytest.raises(UnsupportedParameter) as caught:
        read(None)
    assert "content[1]" in caught.value.message or "output[1]" in caught.value.message
    assert "text" in caught.value.hint


@pytest.mark.parametrize(
    "read",
    [
        lambda i: chat([CHAT], "system", i),
        lambda i: chat([CHAT], "assistant", i),
        lambda i: responses(item([INPUT], "system"), intake=i),
        lambda i: responses(item([INPUT], "assistant"), intake=i),
        lambda i: messages([BLOCK], "assistant", i),
        lambda i: messages([BLOCK], "system", i),
    ],
)
def test_only_users_and_tools_show_pictures(read):
    with pytest.raises(UnsupportedParameter):
        read(Intake(Album()))


@pytest.mark.parametrize(
    ("read", "where"),
    [
        (lambda i: chat([{"type": "image_url"}], intake=i), "image_url"),
        (lambda i: chat([{"type": "image_url", "image_url": {}}], intake=i), "image_url.url"),
        (lambda i: chat([{"type": "image_url", "image_url": {"url": "https://x/y"}}], intake=i), "url"),
        (lambda i: chat([{"type": "image_url", "image_url": 3}], intake=i), "image_url"),
        (lambda i: responses(item([{"type": "input_image"}]), intake=i), "image_url"),
        (lambda i: responses(item([{"type": "input_image", "file_id": "f"}]), intake=i), "file_id"),
        (lambda i: responses(item([{"type": "input_image", "image_url": "http://x"}]), intake=i), "image_url"),
        (lambda i: responses(item([{"type": "input_file", "file_id": "f"}]), intake=i), "type"),
        (lambda i: messages([{"type": "image"}], intake=i), "source"),
        (lambda i: messages([{"type": "image", "source": {"type": "url", "url": "https://x"}}], intake=i), "source.type"),
        (lambda i: messages([{"type": "image", "source": {"type": "base64"}}], intake=i), "source.data"),
        (lambda i: messages([{"type": "image", "source": SOURCE | {"data": "AA=="}}], intake=i), "source.data"),
        (lambda i: messages([{"type": "document", "source": SOURCE}], intake=i), "type"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_that_names_it(read, where):
    with pytest.raises(RequestError) as caught:
        read(Intake(Album()))
    assert caught.value.details["parameter"].endswith(where)
    assert caught.value.hint
    assert len(caught.value.message) < 200
