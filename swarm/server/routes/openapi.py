"""The OpenAPI document: FastAPI's part for the control routes, hand-written entries for the plain Starlette ones."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from swarm.protocol.clients import AgreeRequest, ClientRegistration, ControllerRequest, Heartbeat
from swarm.protocol.config import TrainConfig
from swarm.protocol.episodes import (
    AbortRequest,
    AgentKey,
    AgentKeyRequest,
    FinishReply,
    FinishRequest,
    Grant,
    GrantRequest,
    PrepareReply,
)
from swarm.protocol.messages import EvalRoundClose
from swarm.protocol.pool import TaskQueue
from swarm.server.routes.dialects.openapi import dialect_paths

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
    ControllerRequest,
    Heartbeat,
    EvalRoundClose,
    GrantRequest,
    FinishRequest,
    AbortRequest,
    AgentKeyRequest,
    AgreeRequest,
    TaskQueue,
)
_ANSWER_MODELS: tuple[type[BaseModel], ...] = (Grant, FinishReply, PrepareReply, AgentKey)


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
        **dialect_paths(),
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
        "/swarm/episodes/{episode_id}/prepare": {
            "post": _episode("prepare", "Promise to take a finish", FinishRequest, PrepareReply)
            | _path_parameter("episode_id")
        },
        "/swarm/episodes/{episode_id}/commit": {
            "post": _episode("commit", "Finish a prepared episode", None, FinishReply)
            | _path_parameter("episode_id")
        },
        "/swarm/episodes/{episode_id}/confirm": {
            "post": _episode("confirm", "Keep a reservation", None, Grant)
            | _path_parameter("episode_id")
        },
        "/swarm/episodes/{episode_id}/agents": {
            "post": _episode("agent_key", "A key for one agent", AgentKeyRequest, AgentKey)
            | _path_parameter("episode_id")
        },
        "/health": {
            "get": _plain("health", "Whether the process answers", "No token.") | {"security": []}
        },
        "/metrics": {"get": _plain("prometheus", "Prometheus gauges", "Any token.")},
    }


def _episode(
    operation_id: str, summary: str, body: type[BaseModel] | None, answer: type[BaseModel]
) -> dict[str, Any]:
    about = (body or answer).__doc__ or ""
    entry: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "description": f"{about} The eval token may do this for eval episodes only.",
        "tags": ["episodes"],
        "responses": {"200": _answer(answer.__name__, answer.__doc__ or "")},
    }
    if body is not None:
        schema = _ref(body.__name__)
        content = {"application/json": {"schema": schema}}
        entry["requestBody"] = {"required": True, "content": content}
    return entry


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
