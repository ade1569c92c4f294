"""From messages to prompt ids: plain rendering, and rendering on top of what the server itself sampled.

Also the identity of a message: what has to be equal for two messages to count as the same.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import orjson

from swarm.protocol.errors import RequestError
from swarm.server.pictures import parts
from swarm.server.tracking.guard import MARK
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.server.tracking.toolcalls.values import writable

SENTINEL = f"CAPTUREDREPLY{secrets.token_hex(8)}"
"""Stands for a captured answer inside a template; random, so that no message contains it. Never leaves this file's output."""
OPEN_END = f"GOESONHERE{secrets.token_hex(8)}"
"""Stands where an answer that is continued goes on."""

MessageKey = tuple[str, str | bytes, tuple[tuple[str, bytes], ...]]
"""(role, content, calls as (name, arguments as sorted JSON)); a content with pictures counts as bytes: its texts and digests."""


class Rendered(NamedTuple):
    """A prompt."""

    ids: list[int]
    guarded: int
    """Control tokens that messages spelled, in the part that was rendered now."""


def normal_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as rendering takes it: text content ("" for None), call arguments as objects, no developer role.

    A content with pictures is a list of parts (``swarm.server.pictures.parts``).

    Raises:
        RequestError: no role, or content that is neither text nor such parts.
    """
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError(
            "a message has no role", hint="give every message a 'role' of type string"
        )
    content = message.get("content")
    if type(content) is not str:
        content = _content_of(content)
    normal = {**message, "content": content}
    if role == "developer":
        normal["role"] = "system"
    if message.get("tool_calls"):
        normal["tool_calls"] = [_normal_call(call) for call in message["tool_calls"]]
    else:
        normal.pop("tool_calls", None)
    return normal


def text_of(content: object) -> str:
    """Return the text of a message's content: a string, None, or a list of text parts.

    Raises:
        RequestError: a part that is not text.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) == len(texts):
            return "".join(known)
    raise RequestError(
        "message content must be text or a list of text parts",
        hint="leave out audio and files, and images where the served model reads text only",
    )


def _content_of(content: object) -> str | list[dict[str, Any]]:
    if type(content) is list and any(parts.is_picture(part) for part in content):
        others = (part if parts.is_picture(part) else text_of([part]) for part in content)
        return parts.content_of(others)
    return text_of(content)


def message_key(normal: dict[str, Any]) -> MessageKey:
    """Return the identity of a normal message: role, content, and calls by name and parsed arguments (call ids do not count)."""
    calls, content = normal.get("tool_calls"), normal["content"]
    if type(content) is list:
        content = parts.key_of(content)
    if not calls:
        return (normal["role"], content, ())
    return (normal["role"], content, tuple(_call_key(call) for call in calls))


def tools_key(tools: list[dict[str, Any]], template_kwargs: dict[str, Any]) -> bytes:
    """Return the identity of what a template sees besides the messages; key order does not count."""
    if not tools and not template_kwargs:
        return b""
    return orjson.dumps([tools, template_kwargs], option=orjson.OPT_SORT_KEYS)


def render_ids(
    tokenizer: ChatTokenizer,
    normals: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    template_kwargs: dict[str, Any],
    *,
    open_end: bool = False,
) -> Rendered:
    """Render and encode the whole conversation, with a generation prompt at the end. The ids may be shared with equal prompts.

    ``open_end``: the last message is the beginning of the answer, and nothing is written after its text.

    Raises:
        RequestError: the template refuses the messages, does not keep the end of that text, or does not show every picture.
    """
    cache = tokenizer.renders
    key = cache.key(normals, tools, template_kwargs, open_end) if cache is not None else b""
    known = cache.get(key) if cache is not None else None
    if known is not None:
        return Rendered(*known)
    text = _text(tokenizer, normals, tools, template_kwargs, open_end=open_end)
    if text is None:
        raise RequestError(
            "the model's template does not show the last message, so it cannot be continued",
            hint="end the conversation with a user or tool message",
        )
    rendered = _encoded(tokenizer, [], text)
    if not _shows_pictures(tokenizer, normals, rendered.ids):
        raise RequestError(
            f"the model's template does not show the {len(parts.digests(normals))} pictures of these messages, each once",
            hint="send pictures in messages of the user; some templates show none elsewhere",
        )
    if cache is not None:
        cache.put(key, rendered)
    return rendered


def render_onto(
    tokenizer: ChatTokenizer,
    captured: list[int],
    normals: list[dict[str, Any]],
    position: int,
    tools: list[dict[str, Any]],
    template_kwargs: dict[str, Any],
    *,
    open_end: bool = False,
) -> Rendered | None:
    """Continue from captured ids: ``captured`` holds prompt and answer up to the assistant message at ``position``.

    The answer is replaced by a sentinel in the template's input; what the template writes after the sentinel is
    encoded and appended. An end token that was sampled is not written twice; one that was not (a truncated answer) is
    appended as an unsampled token. Returns None when the template does not keep the sentinel intact, exactly once, or
    not every picture.
    ``open_end`` as in ``render_ids``.
    """
    standin = {"role": "assistant", "content": SENTINEL}
    replaced = [*normals[:position], standin, *normals[position + 1 :]]
    try:
        text = _text(tokenizer, replaced, tools, template_kwargs, open_end=open_end)
    except RequestError:
        return (
            None  # some templates check calls against their results; plain rendering may still work
        )
    pieces = text.split(SENTINEL) if text is not None else []
    if len(pieces) != 2:
        return None
    rest = pieces[1]
    end_text = tokenizer.eos_texts.get(captured[-1])
    if end_text and rest.startswith(end_text):
        rest = rest[len(end_text) :]
    rendered = _encoded(tokenizer, captured, rest)
    return rendered if _shows_pictures(tokenizer, normals, rendered.ids) else None


def _shows_pictures(
    tokenizer: ChatTokenizer, normals: list[dict[str, Any]], ids: list[int]
) -> bool:
    """Whether a prompt has one image token for each picture of its messages."""
    token = tokenizer.image_token
    return token is None or ids.count(token) == len(parts.digests(normals))


def _text(
    tokenizer: ChatTokenizer,
    normals: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    template_kwargs: dict[str, Any],
    *,
    open_end: bool,
) -> str | None:
    """Return the template's text; with ``open_end`` None when the end of the last message does not show in it."""
    if not open_end:
        return tokenizer.render(normals, tools, template_kwargs)
    last = normals[-1]
    marked = [*normals[:-1], {**last, "content": f"{last['content']}{OPEN_END}"}]
    text = tokenizer.render(marked, tools, template_kwargs, add_generation_prompt=False)
    before, mark, _ = text.partition(OPEN_END)
    return before if mark else None


def _encoded(tokenizer: ChatTokenizer, before: list[int], text: str) -> Rendered:
    return Rendered(before + tokenizer.encode(text), text.count(MARK))


def _normal_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments) if arguments else {}
        except orjson.JSONDecodeError:
            return call  # the template gets the text as it came
        if not writable(arguments):
            return call
    return {**call, "function": {**function, "arguments": arguments}}


def _call_key(call: dict[str, Any]) -> tuple[str, bytes]:
    function = call.get("function")
    if not isinstance(function, dict):
        function = call
    arguments = function.get("arguments")
    return (
        str(function.get("name", "")),
        orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS),
    )
