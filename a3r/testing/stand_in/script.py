"""A script: what a stand-in answers to a request. A pure function of the request, so that scripted campaigns repeat."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from a3r.core.llm import ModelRequest, ToolCall

TASK = re.compile(r"^# Task: (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """A reply, or with another ``status`` than 200 a refusal."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    """Empty: ``tool_calls`` with calls, else ``stop``."""
    status: int = 200
    error: str = ""
    retry_after_s: float | None = None
    delay_s: float = 0.0
    """How long the HTTP server waits before it answers; ``ScriptedModel`` does not wait."""


Script = Callable[[ModelRequest], Answer]


def said(value: str | BaseModel | Mapping[str, Any] | list[Any]) -> Answer:
    """An answer that holds the value as JSON, a string as it is."""
    if isinstance(value, str):
        return Answer(value)
    if isinstance(value, BaseModel):
        return Answer(value.model_dump_json())
    return Answer(json.dumps(value, ensure_ascii=False))


def used(name: str, arguments: Mapping[str, Any] | None = None, *, call_id: str = "") -> Answer:
    """An answer that uses one tool."""
    body = json.dumps(dict(arguments or {}), ensure_ascii=False)
    return Answer(tool_calls=(ToolCall(id=call_id or f"call-{name}", name=name, arguments=body),))


def task_of(request: ModelRequest) -> str:
    """The purpose that the desk names in the system message (``plan``, ``repair``...); empty without one."""
    found = TASK.search(request.messages[0].content) if request.messages else None
    return found.group(1) if found else ""


def turn_of(request: ModelRequest) -> int:
    """How often the model has spoken in this conversation already."""
    return sum(message.role == "assistant" for message in request.messages)


def in_turn(*answers: Answer) -> Script:
    """The nth answer to the nth turn of each conversation; the last one ever after."""

    def script(request: ModelRequest) -> Answer:
        return answers[min(turn_of(request), len(answers) - 1)]

    return script


def by_task(scripts: Mapping[str, Script]) -> Script:
    """Each purpose has its own script; an unknown one is refused with status 400."""

    def script(request: ModelRequest) -> Answer:
        task = task_of(request)
        if task not in scripts:
            return Answer(status=400, error=f"the script knows no task {task!r}")
        return scripts[task](request)

    return script
