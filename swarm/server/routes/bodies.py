"""Request bodies: read with a bound, parsed as JSON, validated; every failure is a 400 with a hint."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from swarm.protocol.errors import ConfigError, RequestError, SwarmError

MAX_BODY_BYTES = 64 * 1024 * 1024

ModelT = TypeVar("ModelT", bound=BaseModel)


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body; ``RequestError`` once it is known to be longer than ``limit`` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse ``raw`` as one JSON object.

    NaN, Infinity and numbers beyond the largest double, which JSON forbids and Python writes, are let through as floats:
    whoever reads the field answers for it (a reward of NaN is a ``RewardError``, which says more than "invalid JSON").
    An empty body is ``{}``.
    """
    if not raw.strip():
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


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The body is larger than {limit} bytes.",
        hint="Shorten the conversation; the model's context is far smaller.",
    )


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
