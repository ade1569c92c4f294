"""Entries of the OpenAPI document for the routes of agents: what is needed and what is read; everything else is tolerated."""

from __future__ import annotations

from typing import Any

from swarm.server.routes.dialects.common.serving import PREFIXES

_TEXT: dict[str, Any] = {"type": "string"}
_OBJECT: dict[str, Any] = {"type": "object"}
_OBJECTS: dict[str, Any] = {"type": "array", "items": _OBJECT}
_TEXTS: dict[str, Any] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
_TEMPERATURE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 2}
_SHARE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_FLAG: dict[str, Any] = {"type": "boolean"}
_PENALTY: dict[str, Any] = {"type": "number", "minimum": -2, "maximum": 2}

_SAMPLING: dict[str, Any] = {
    "temperature": _TEMPERATURE,
    "top_p": _SHARE,
    "top_k": {"type": "integer", "minimum": -1},
    "min_p": _SHARE,
    "stop": _TEXTS,
    "seed": {"type": "integer"},
    "n": _COUNT,
    "logit_bias": {"type": "object", "additionalProperties": {"type": "number"}},
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
    "stream": _FLAG,
    "return_token_ids": _FLAG,
}
_CHAT = _SAMPLING | {
    "messages": {**_OBJECTS, "minItems": 1},
    "tools": _OBJECTS,
    "tool_choice": {},
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "logprobs": _FLAG,
    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    "response_format": _OBJECT,
    "stream_options": _OBJECT,
    "chat_template_kwargs": _OBJECT,
}
_COMPLETIONS = _SAMPLING | {"prompt": {}, "max_tokens": _COUNT, "echo": _FLAG}
_RESPONSES = {
    "input": {"anyOf": [_TEXT, _OBJECTS]},
    "instructions": _TEXT,
    "tools": _OBJECTS,
    "previous_response_id": _TEXT,
    "max_output_tokens": _COUNT,
    "temperature": _TEMPERATURE,
    "top_p": _SHARE,
    "store": _FLAG,
    "stream": _FLAG,
}
_MESSAGES = {
    "messages": {**_OBJECTS, "minItems": 1},
    "max_tokens": _COUNT,
    "system": {},
    "tools": _OBJECTS,
    "tool_choice": _OBJECT,
    "temperature": _SHARE,
    "top_p": _SHARE,
    "stop_sequences": {"type": "array", "items": _TEXT},
    "thinking": _OBJECT,
    "stream": _FLAG,
}
_PAGE = {
    "order": {"type": "string", "enum": ["asc", "desc"]},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "after": _TEXT,
}
_ABOUT = "The key is an episode's. Parameters that this server does not know are tolerated and listed in the trace."


def dialect_paths() -> dict[str, Any]:
    """Return the entries of all dialects, each under both prefixes."""
    one = "/responses/{response_id}"
    entries: dict[str, dict[str, Any]] = {
        "/chat/completions": {
            "post": _post("chat_completions", "Chat (OpenAI)", _CHAT, ["messages"])
        },
        "/completions": {
            "post": _post("completions", "Complete a prompt (OpenAI)", _COMPLETIONS, ["prompt"])
        },
        "/responses": {"post": _post("responses", "Respond (OpenAI)", _RESPONSES, ["input"])},
        one: {
            "get": _entry("read_response", "A stored response"),
            "delete": _entry("delete_response", "Forget a stored response"),
        },
        f"{one}/input_items": {
            "get": _entry("response_input", "Input items of a response")
            | {"parameters": [_query(name, schema) for name, schema in _PAGE.items()]}
        },
        "/messages": {
            "post": _post("messages", "Message (Anthropic)", _MESSAGES, ["messages", "max_tokens"])
        },
        "/messages/count_tokens": {
            "post": _post(
                "count_tokens", "Count a prompt's tokens (Anthropic)", _MESSAGES, ["messages"]
            )
        },
        "/models": {"get": _entry("list_models", "The served model")},
        "/models/{model}": {"get": _entry("read_model", "The served model, by id")},
    }
    return {
        f"{prefix}{path}": {
            method: _placed(operation, prefix, path) for method, operation in operations.items()
        }
        for path, operations in entries.items()
        for prefix in PREFIXES
    }


def _placed(operation: dict[str, Any], prefix: str, path: str) -> dict[str, Any]:
    """Name the operation apart under each prefix, and list the parameters of its path."""
    by_url = "{token}" in prefix
    names = [part[1:-1] for part in f"{prefix}{path}".split("/") if part.startswith("{")]
    placed = operation | {"operationId": f"{operation['operationId']}{'_by_url' if by_url else ''}"}
    if names:
        placed["parameters"] = [
            *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names),
            *operation.get("parameters", ()),
        ]
    return placed


def _post(
    operation_id: str, summary: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": True,
    }
    content = {"application/json": {"schema": schema}}
    return _entry(operation_id, summary) | {"requestBody": {"required": True, "content": content}}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _entry(operation_id: str, summary: str) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": _ABOUT,
        "tags": ["inference"],
        "responses": {"200": {"description": summary}},
    }
