"""The named parsers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from swarm.protocol.errors import ConfigError
from swarm.server.tracking.toolcalls.marked import MarkedCalls
from swarm.server.tracking.toolcalls.mistral import MistralCalls
from swarm.server.tracking.toolcalls.pieces import CallPiece, Parser, PlainText
from swarm.server.tracking.toolcalls.values import call_of_text, calls_of_json, tool_names
from swarm.server.tracking.toolcalls.whole import WholeAnswer, begins_with

OPEN, CLOSE = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"

ToolParser = Callable[[list[dict[str, Any]]], Parser]
"""Declared tools -> a parser for one answer. Without tools it is one that finds nothing."""


def _hermes(tools: list[dict[str, Any]]) -> Parser:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, any number, with text around (Hermes 2 Pro, Qwen 2.5 and 3)."""
    del tools
    return MarkedCalls(OPEN, CLOSE)


def _expression(tools: list[dict[str, Any]]) -> Parser:
    """The whole answer ``<tool_call>37+48</tool_call>`` calls the first declared tool with ``{"expression": "37+48"}``."""
    name = tool_names(tools)[0]

    def read(text: str) -> list[CallPiece] | None:
        body = text.strip()
        inner = body[len(OPEN) : -len(CLOSE)]
        whole = (
            len(body) >= len(OPEN) + len(CLOSE) and body.startswith(OPEN) and body.endswith(CLOSE)
        )
        if not whole or OPEN in inner or CLOSE in inner:
            return None
        return [CallPiece(name, {"expression": inner})]

    return WholeAnswer(begins_with(OPEN), read)


def _json(tools: list[dict[str, Any]]) -> Parser:
    """The whole answer is one JSON call of a declared tool, or a list of them."""
    declared = set(tool_names(tools))
    return WholeAnswer(begins_with("{", "["), lambda text: calls_of_json(text, declared))


def _llama(tools: list[dict[str, Any]]) -> Parser:
    """Llama 3.x: the whole answer is ``{"name": ..., "parameters": {...}}``, several with ``;`` between, a python tag before or not."""
    declared = set(tool_names(tools))

    def read(text: str) -> list[CallPiece] | None:
        body = text.strip().removeprefix(PYTHON_TAG).strip()
        one = calls_of_json(body, declared)
        if one is not None:
            return one
        calls = [call_of_text(part) for part in _split_calls(body)]
        known = [call for call in calls if call is not None and call.name in declared]
        return known if known and len(known) == len(calls) else None

    return WholeAnswer(begins_with("{", PYTHON_TAG), read)


def _mistral(tools: list[dict[str, Any]]) -> Parser:
    """Mistral: see ``mistral``."""
    del tools
    return MistralCalls()


def _split_calls(text: str) -> list[str]:
    """Cut at every ``;`` that stands outside of JSON strings and braces."""
    parts, depth, inside, escaped, start = [], 0, False, False, 0
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif inside:
            escaped = character == "\\"
            inside = character != '"'
        elif character == '"':
            inside = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
        elif character == ";" and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


FAMILIES: dict[str, ToolParser] = {
    "expression": _expression,
    "hermes": _hermes,
    "qwen": _hermes,
    "llama": _llama,
    "mistral": _mistral,
    "json": _json,
}


def tool_parser(name: str) -> ToolParser:
    """Return the parser of that name.

    Raises:
        ConfigError: no such parser; the hint lists them.
    """
    family = FAMILIES.get(name)
    if family is None:
        raise ConfigError(
            f"tool parser {name!r} is unknown",
            hint=f"set model.tool_parser to one of {', '.join(map(repr, FAMILIES))}",
        )
    return lambda tools: family(tools) if tools else PlainText()


def call_name(family: str, place: str, number: int) -> str:
    """Return the id of the ``number``-th call of the answer at ``place``, the same at the same place: templates may print it.

    Mistral's templates refuse ids that are not nine letters and digits.
    """
    if family == "mistral":
        return hashlib.blake2b(f"{place}-{number}".encode()).hexdigest()[:9]
    return f"call-{place}-{number}"
