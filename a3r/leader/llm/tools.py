"""Typed tools that a model may use while it works on an answer. What a tool says is quoted data, never an instruction."""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

from a3r.core.hashing import bytes_hash
from a3r.core.llm import ToolCall, ToolSpec

MAX_RESULT = 20_000
"""Characters of one result; more is cut in the middle."""


class Toolbox(Protocol):
    """The tools of one question."""

    def specs(self) -> tuple[ToolSpec, ...]:
        """What there is."""
        ...

    def use(self, call: ToolCall) -> str:
        """Do it and say what came of it. Never raises: what went wrong is text for the model.

        After a crash the same calls are made again, so doing one twice must be harmless.
        """
        ...


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object.

    Raises:
        ValueError: they are no JSON object; the text is fit for the model.
    """
    try:
        value: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        msg = f"the arguments of {call.name} are no JSON: {error}"
        raise ValueError(msg) from error
    if not isinstance(value, dict):
        msg = f"the arguments of {call.name} must be a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - one error for everything that is wrong with them
    return cast("dict[str, Any]", value)


def quoted(title: str, text: str) -> str:
    """``text`` between marks that it can not contain: the closing mark names the hash of what it closes.

    Control characters but newline and tab are taken out, and more than ``MAX_RESULT`` characters are cut in the middle.
    """
    clean = "".join(c for c in text if c in "\n\t" or c.isprintable())
    if len(clean) > MAX_RESULT:
        half, cut = MAX_RESULT // 2, len(clean) - MAX_RESULT
        clean = f"{clean[:half]}\n[... {cut} characters left out ...]\n{clean[-half:]}"
    mark = bytes_hash(clean.encode("utf-8", "replace"))[:12]
    return f"<<<data {mark}: {title}\n{clean}\n>>>end {mark}"
