"""The OpenAPI document: FastAPI's part for the control routes, hand-written entries for the plain Starlette ones."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import (
    AbortRequest,
    ClientRegistration,
    EvalRoundClose,
    FinishReply,
    FinishRequest,
    Grant,
    GrantRequest,
)

TITLE = "swarm"
VERSION = "1"
DESCRIPTION = """\
A server that trains a model from the episodes that agents run against its OpenAI-compatible URL.

**Agents** use `base_url` and `api_key` of a grant: `POST {base_url}/chat/completions`. A key opens one episode and expires.
**Clients** register, take episodes, run an agent, and finish each with a reward, using the client (or eval) token.
**Operators** set the configuration and start the engine with the admin token.

Errors are `{"error": {"message", "type", "code", "hint", "details"}}`. A 4xx other than 429 carries `x-should-retry: false`.
"""
_TEXT: dict[str, Any] = {"type": "string"}
_BODY_MODELS: tuple[type[BaseModel], ...] = (
    TrainConfig,
    ClientRegistration,
    EvalRoundClose,
    GrantRequest,
    FinishRequest,
    AbortRequest,
)
_ANSWER_MODELS: tuple[type[BaseModel], ...] = (Grant, FinishReply)


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of ``app``."""
    document = get_openapi(title=TITLE, version=VERSION, description=DESCRIPTION, routes=app.routes)
    document["paths"] = _hot_paths() | document["paths"]
    components = document.setdefault("components", {})
    components["schemas"] = _schemas() | components.get("schemas", {}) | {"Error": _error_schema()}
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"bearer": []}]
    for path in document["paths"].values():
        for operation in path.values():
            # FastAPI's own 422 does not exist here: every error has the one envelope.
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = _answer("Error", "Any error.")
    return document


def _schemas() -> dict[str, Any]:
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((m, "validation") for m in _BODY_MODELS),
        *((m, "serialization") for m in _ANSWER_MODELS),
    ]
    _, made = models_json_schema(wanted, ref_template="#/components/schemas/{model}")
    return made["$defs"]


def _hot_paths() -> dict[str, Any]:
    return {
        "/v1/chat/completions": {"post": _chat("chat_completions")},
        "/e/{token}/v1/chat/completions": {
            "post": _chat("chat_completions_by_url") | _path_parameter("token")
        },
        "/v1/models": {"get": _models("list_models")},
        "/e/{token}/v1/models": {"get": _models("list_models_by_url") | _path_parameter("token")},
        "/swarm/episodes": {"post": _episode("grant", "Ask for an episode", GrantRequest, Grant)},
        "/swarm/episodes/{episode_id}/finish": {
            "post": _episode(
                "finish", "Finish an episode with its reward", FinishRequest, FinishReply
            )
            | _path_parameter("episode_id")
        },
        "/swarm/episodes/{episode_id}/abort": {
            "post": _episode("abort", "Give an episode up", AbortRequest, FinishReply)
            | _path_parameter("episode_id")
        },
        "/health": {
            "get": _plain("health", "Whether the process answers", "No token.") | {"security": []}
        },
        "/metrics": {"get": _plain("prometheus", "Prometheus gauges", "Any token.")},
    }


def _chat(operation_id: str) -> dict[str, Any]:
    text = (
        "OpenAI's chat completion. The key is an episode's. Parameters that would change the answer and are not served are "
        "refused; every sampling value is kept as it was sent. `return_token_ids: true` adds token ids."
    )
    properties = {
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        "tools": {"type": "array", "items": {"type": "object"}},
        "tool_choice": {"enum": ["auto", "none"]},
        "max_tokens": {"type": "integer", "minimum": 1},
        "max_completion_tokens": {"type": "integer", "minimum": 1},
        "temperature": {"type": "number", "minimum": 0},
        "stop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
        "seed": {"type": "integer"},
        "logprobs": {"type": "boolean"},
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
        "stream": {"type": "boolean"},
        "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
        "chat_template_kwargs": {"type": "object"},
        "return_token_ids": {"type": "boolean"},
    }
    body = {
        "type": "object",
        "required": ["messages"],
        "properties": properties,
        "additionalProperties": True,
    }
    entry = _plain(operation_id, "Chat with the policy being trained", text, tag="inference")
    return entry | {
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}}
    }


def _models(operation_id: str) -> dict[str, Any]:
    return _plain(operation_id, "The served model", "The key is an episode's.", tag="inference")


def _episode(
    operation_id: str, summary: str, body: type[BaseModel], answer: type[BaseModel]
) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": (body.__doc__ or "") + " The eval token may do this for eval episodes only.",
        "tags": ["episodes"],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _ref(body.__name__)}},
        },
        "responses": {"200": _answer(answer.__name__, answer.__doc__ or "")},
    }


def _plain(
    operation_id: str, summary: str, description: str, *, tag: str = "records"
) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": description,
        "tags": [tag],
        "responses": {"200": {"description": summary}},
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"parameters": [{"name": name, "in": "path", "required": True, "schema": _TEXT}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(schema: str, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}


def _error_schema() -> dict[str, Any]:
    fields = {
        "message": _TEXT,
        "type": _TEXT,
        "code": _TEXT,
        "hint": _TEXT,
        "details": {"type": "object"},
    }
    return {"type": "object", "properties": {"error": {"type": "object", "properties": fields}}}
