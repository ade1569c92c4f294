"""Which constraint holds for an answer: the caller's own, a tool call that must come, or either.

The engine builds the grammar; here it is only named: ``tool_call`` with the family's way of writing calls and the tools that may
be called, ``any_of`` with alternatives.
"""

from __future__ import annotations

from typing import Any

from swarm.server.service.calls import ChatCall, Grammar


def grammar_of(call: ChatCall, family: str) -> Grammar | None:
    """Return the constraint in force for ``call``; ``family`` names the tool-call parser."""
    own = call.sampling.grammar
    if not call.tools or call.tool_choice == "none" or call.prompt is not None:
        return own
    if call.tool_choice == "required":
        return _tool_call(call, family, call.tools)
    if isinstance(call.tool_choice, dict):
        named = [t for t in call.tools if t["function"]["name"] == call.tool_choice["name"]]
        return _tool_call(call, family, named)
    if own is None:
        return None
    # Tools may be called or not, and what is said must follow the caller's constraint.
    calls = _tool_call(call, family, call.tools)
    alternatives = [{"kind": g.kind, "body": g.body} for g in (own, calls)]
    return Grammar("any_of", alternatives)


def _tool_call(call: ChatCall, family: str, tools: list[dict[str, Any]]) -> Grammar:
    functions = [
        {"name": tool["function"]["name"], "parameters": tool["function"].get("parameters") or {}}
        for tool in tools
    ]
    several = call.parallel_tool_calls and not isinstance(call.tool_choice, dict)
    return Grammar("tool_call", {"family": family, "tools": functions, "several": several})
