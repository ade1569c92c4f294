"""Tools of the Responses dialect: functions, custom tools that take free text, and namespaces of both.

The model sees functions only: a custom tool is one with the single argument ``input``, a tool of a namespace is called
``<namespace>.<name>``. Calls go out under the kind and name that were declared. Tools that OpenAI itself would run (web search and
the like) can never be called here; they are left out and listed with the unknown parameters, so that no agent breaks on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.routes.dialects.common.tools import check_choice, check_names, function_tool

HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search")
"""Beginnings of the types that run at OpenAI; some carry a date behind."""
FREE_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


@dataclass(frozen=True, slots=True)
class Declared:
    """A tool as the caller knows it."""

    name: str
    namespace: str | None = None
    custom: bool = False


@dataclass(slots=True)
class ToolSet:
    """The tools of one request."""

    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """In the internal form."""
    declared: dict[str, Declared] = field(default_factory=dict[str, Declared])
    """By the name that the model sees."""
    left_out: list[str] = field(default_factory=list[str])

    def item(self, call: dict[str, Any], status: str) -> dict[str, Any]:
        """Return the output item of a tool call; its own id is made from the call's."""
        function = call["function"]
        tool = self.declared.get(function["name"], Declared(function["name"]))
        item: dict[str, Any] = {"call_id": call["id"], "name": tool.name, "status": status}
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        if tool.custom:
            text = _free_text(function["arguments"])
            return {"id": f"ctc_{call['id']}", "type": "custom_tool_call", "input": text} | item
        arguments = function["arguments"]
        return {"id": f"fc_{call['id']}", "type": "function_call", "arguments": arguments} | item


def seen_name(namespace: str | None, name: str) -> str:
    """Return what the model calls a tool."""
    return f"{namespace}.{name}" if namespace else name


def read_tools(fields: Fields) -> ToolSet:
    """Return the declared tools.

    Raises:
        RequestError: a tool that is malformed, of a type that this server cannot show to its model, or named like another.
    """
    found = ToolSet()
    for i, value in enumerate(fields.items("tools")):
        _add(found, Fields(value, f"tools[{i}]"), None)
    check_names(found.tools)
    return found


def read_choice(fields: Fields, tools: ToolSet) -> Any:
    """Return ``auto``, ``none``, ``required`` or ``{"name": ...}``."""
    value = fields.get("tool_choice")
    if value is None:
        return "auto"
    if isinstance(value, str):
        if value in ("auto", "none", "required"):
            return value
        raise wrong("tool_choice", value, "'auto', 'none', 'required' or a function")
    given = Fields(value, "tool_choice")
    if given.text("type") not in ("function", "custom"):
        raise unsupported("tool_choice", value, "Name a declared function.")
    name = seen_name(given.text("namespace"), given.text("name") or "")
    return {"name": check_choice(name, tools.tools)}


def custom_arguments(text: str) -> str:
    """Return the arguments that stand for a custom tool's text."""
    return orjson.dumps({"input": text}).decode()


def _add(found: ToolSet, tool: Fields, namespace: str | None) -> None:
    kind, name = tool.text("type") or "", tool.text("name")
    if kind.startswith(HOSTED):
        found.left_out.append(f"{tool.path('type')}: {kind}")
        return
    if kind not in ("function", "custom") and (kind != "namespace" or namespace is not None):
        raise unsupported(
            tool.path("type"), kind, "Declare tools of type 'function', 'custom' or 'namespace'."
        )
    if not name:
        raise wrong(tool.path("name"), name, "a non-empty string")
    if kind == "namespace":
        for i, value in enumerate(tool.items("tools")):
            _add(found, Fields(value, f"{tool.path('tools')}[{i}]"), name)
        return
    custom, seen = kind == "custom", seen_name(namespace, name)
    parameters = FREE_TEXT if custom else tool.get("parameters")
    found.tools.append(function_tool(seen, tool.text("description"), parameters))
    found.declared[seen] = Declared(name, namespace, custom)


def _free_text(arguments: str) -> str:
    """The text of a custom tool's call; whatever else the model wrote goes out as it is."""
    read: Any = orjson.loads(arguments)
    text = read.get("input") if isinstance(read, dict) else None
    return text if isinstance(text, str) else arguments
