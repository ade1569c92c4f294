"""Declared tools in the one internal form (OpenAI's ``{"type": "function", "function": {...}}``) and the choice among them."""

from __future__ import annotations

from typing import Any

from swarm.protocol.errors import RequestError


def function_tool(name: str, description: str | None, parameters: Any) -> dict[str, Any]:
    """Return the internal form; what was not sent is not written."""
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


def check_names(tools: list[dict[str, Any]], where: str = "tools") -> list[dict[str, Any]]:
    """Return ``tools``; ``RequestError`` when two have one name."""
    names: set[str] = set()
    for i, tool in enumerate(tools):
        name = tool["function"]["name"]
        if name in names:
            raise RequestError(
                f"{where}[{i}]: the name {name!r} is declared twice.",
                hint="Give each tool its own name.",
                parameter=where,
            )
        names.add(name)
    return tools


def check_choice(name: str, tools: list[dict[str, Any]], where: str = "tool_choice") -> str:
    """Return ``name``; ``RequestError`` when no declared tool is called that."""
    declared = [tool["function"]["name"] for tool in tools]
    if name not in declared:
        known = ", ".join(map(repr, declared)) or "none"
        raise RequestError(
            f"{where} names {name!r}, which is not among the declared tools.",
            hint=f"Declared: {known}.",
            parameter=where,
        )
    return name
