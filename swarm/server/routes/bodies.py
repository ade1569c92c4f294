"""Request bodies: read with a bound, parsed as JSON, validated; every failure is a 400 (or 413) with a hint."""

from __future__ import annotations

import asyncio
import json
from difflib import get_close_matches
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.types import Message, Receive

from swarm.protocol.errors import BodyTooLarge, ConfigError, RequestError, SwarmError
from swarm.server.routes.abandon import ClientLeft

MAX_BODY_BYTES = 64 * 1024 * 1024
DRAINED_BYTES = 4 * MAX_BODY_BYTES
"""Of a body that is too large, read and thrown away so that its sender gets the answer and not a broken connection."""
PATIENCE_S = 30.0
"""A body of which nothing comes for this long is given up."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def takes(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that the route reads itself (bounded, with the envelope's errors)."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}


async def read_body(
    request: Request, *, limit: int = MAX_BODY_BYTES, patience_s: float = PATIENCE_S
) -> bytes:
    """Return the whole body.

    Raises:
        BodyTooLarge: It is longer than ``limit`` bytes.
        RequestError: Nothing more of it came for ``patience_s``.
        ClientLeft: The client closed its connection.
    """
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= DRAINED_BYTES:
        message = await _received(request.receive, size, patience_s)
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
    if size > limit:
        raise BodyTooLarge(
            f"The body is larger than {limit} bytes.",
            hint="Shorten the conversation; the model's context is far smaller.",
        )
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _received(receive: Receive, size: int, patience_s: float) -> Message:
    """Return the next part of a body. As ``asyncio.timeout`` would, at a fifth of its cost: most parts are there already."""
    worker, late = asyncio.current_task(), False
    assert worker is not None

    def give_up() -> None:
        nonlocal late
        late = True
        worker.cancel()

    timer = asyncio.get_running_loop().call_later(patience_s, give_up)
    try:
        return await receive()
    except asyncio.CancelledError:
        if late and not worker.uncancel():
            raise RequestError(
                f"The body stopped after {size} bytes; nothing came for {patience_s:g} s.",
                hint="Send the request again, over a connection that holds.",
            ) from None
        raise
    finally:
        timer.cancel()


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse ``raw`` as one JSON object.

    NaN, Infinity and numbers beyond the largest double, which JSON forbids and Python writes, are let through as floats:
    whoever reads the field answers for it (a reward of NaN is a ``RewardError``, which says more than "invalid JSON").
    An empty body is ``{}``.
    """
    if not raw or raw.isspace():
        return {}
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        value = _parse_beyond_json(raw, error)
    if not isinstance(value, dict):
        raise RequestError(
            f"The body is a JSON {type(value).__name__}, not an object.",
            hint="Send {...} with named fields.",
        )
    return value


def validate(model: type[ModelT], data: dict[str, Any]) -> ModelT:
    """Return ``data`` as ``model``; ``RequestError`` naming the first wrong field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid(RequestError, model, error) from None


def validate_config(model: type[ModelT], data: dict[str, Any]) -> ModelT:
    """As ``validate``, but ``ConfigError``, with the nearest known key when one was misspelt."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid(ConfigError, model, error) from None


async def body_as(request: Request, model: type[ModelT]) -> ModelT:
    """Read, parse and validate the body of ``request`` as ``model``."""
    return validate(model, parse_object(await read_body(request)))


def _parse_beyond_json(raw: bytes, first: orjson.JSONDecodeError) -> Any:
    """Parse with Python's reader when a number is what the strict one did not take; ``RequestError`` otherwise."""
    refusal = RequestError(
        f"The body is not JSON: {first}.",
        hint="Send one JSON object, UTF-8 encoded, with the header Content-Type: application/json.",
    )
    if not (b"NaN" in raw or b"Infinity" in raw or "number" in str(first)):
        raise refusal
    try:
        value = json.loads(raw)
        # Python's reader takes half surrogate pairs, which nothing behind it can encode.
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        raise refusal from None
    return value


def _invalid(cls: type[SwarmError], model: type[BaseModel], error: ValidationError) -> SwarmError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])
    text = (
        f"{model.__name__}: {where}: {first['msg']}"
        if where
        else f"{model.__name__}: {first['msg']}"
    )
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return cls(f"{text}{more}.", hint=_hint(model, first["loc"], first["type"]))


def _hint(model: type[BaseModel], loc: tuple[int | str, ...], kind: str) -> str:
    if kind != "extra_forbidden":
        return "The fields and their types are in GET /openapi.json."
    section: Any = model
    for part in loc[:-1]:
        field = section.model_fields.get(str(part)) if hasattr(section, "model_fields") else None
        section = field.annotation if field else None
    known = list(section.model_fields) if hasattr(section, "model_fields") else []
    near = get_close_matches(str(loc[-1]), known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known keys here: {', '.join(known)}."
