"""The rules: each looks at one answer and says whether it is broken. Pure; what follows is ``judge``'s business."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from swarm.protocol.config import GuardConfig
from swarm.protocol.records import CallRecord
from swarm.protocol.states import FinishReason
from swarm.server.service.guarding.loops import longest_loop
from swarm.server.tracking.reasoning import ThinkMarks
from swarm.server.tracking.tokenizer import ChatTokenizer
from swarm.server.tracking.toolcalls.values import tool_names

TOOL_MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>")
"""Marks of the tool-call families: control tokens by right, and broken calls when they are left in the text of a reply."""
_PROMPT_END = 16
"""Last ids of a prompt, in which its template may have opened the thinking."""

Rule = Callable[[CallRecord, ChatTokenizer, GuardConfig], bool]


def loop(call: CallRecord, tokenizer: ChatTokenizer, config: GuardConfig) -> bool:
    """Whether the answer repeats one piece over many tokens."""
    del tokenizer
    found = longest_loop(call.sampled_ids, config.loop_repeats)
    return found.tokens >= config.loop_tokens


def special_tokens(call: CallRecord, tokenizer: ChatTokenizer, config: GuardConfig) -> bool:
    """Whether a control token stands in the answer, sampled as one or spelled; its own end and known marks are not meant."""
    del config
    text = tokenizer.answer_text(call.sampled_ids)
    marks = ThinkMarks()
    for known in (*TOOL_MARKS, marks.opening, marks.closing):
        text = text.replace(known, "")
    return any(control in text for control in tokenizer.control_texts)


def unpaired_thinking(call: CallRecord, tokenizer: ChatTokenizer, config: GuardConfig) -> bool:
    """Whether thinking marks do not pair up; an answer that was cut off is judged by nobody, and one of a model without thinking has none."""
    del config
    marks = tokenizer.think_marks
    if marks is None or call.finish_reason == FinishReason.LENGTH:
        return False
    text = tokenizer.answer_text(call.sampled_ids)
    depth = int(marks.opened_by(tokenizer.decode(call.prompt_ids[-_PROMPT_END:])))
    while True:
        found = [
            (at, mark) for mark in (marks.opening, marks.closing) if (at := text.find(mark)) >= 0
        ]
        if not found:
            return depth != 0
        at, mark = min(found)
        depth += 1 if mark == marks.opening else -1
        if depth not in (0, 1):
            return True
        text = text[at + len(mark) :]


def broken_tool_calls(call: CallRecord, tokenizer: ChatTokenizer, config: GuardConfig) -> bool:
    """Whether a call could not be read (its marks are still in the text), names a tool that was not offered, or has no JSON object as arguments."""
    del tokenizer, config
    if not call.tools:
        return False
    content = call.reply.get("content")
    if isinstance(content, str) and any(mark in content for mark in TOOL_MARKS):
        return True
    offered = set(tool_names(call.tools))
    return any(_broken(one, offered) for one in call.reply.get("tool_calls") or ())


def _broken(one: dict[str, Any], offered: set[str]) -> bool:
    function = one.get("function") or {}
    if function.get("name") not in offered:
        return True
    try:
        arguments: object = json.loads(function.get("arguments", ""))
    except (TypeError, ValueError):
        return True
    return not isinstance(arguments, dict)


RULES: dict[str, Rule] = {
    "loop": loop,
    "special_tokens": special_tokens,
    "unpaired_thinking": unpaired_thinking,
    "broken_tool_calls": broken_tool_calls,
}
"""By the names of ``GuardConfig.actions``."""
