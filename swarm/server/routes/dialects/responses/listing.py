"""Input items as ``GET /v1/responses/{id}/input_items`` lists them: each with an id and a status, its text in parts, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.protocol.errors import RequestError

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
"""OpenAI's."""


def input_page(response_id: str, items: list[Any], query: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of the items that led to a response.

    Args:
        response_id: Items that came without an id get one made of it and their place.
        items: Oldest first, as they were sent.
        query: ``order`` (``desc`` by default: newest first), ``limit`` (20; at most 100), ``after`` (an item's id).

    Raises:
        RequestError: a value that is none of these.
    """
    listed = [_listed(item, f"{response_id}_{i}") for i, item in enumerate(items)]
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise _wrong("order", order, "'asc' or 'desc'")
    if order == "desc":
        listed.reverse()
    start, limit = _start(listed, query.get("after")), _limit(query.get("limit"))
    page = listed[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(listed),
    }


def _listed(item: dict[str, Any], name: str) -> dict[str, Any]:
    kind = item.get("type") or "message"
    whole = {"status": "completed"} | item | {"type": kind}
    prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}.get(kind, "out")
    whole["id"] = item.get("id") or f"{prefix}_{name}"
    if kind == "message" and isinstance(item.get("content"), str):
        whole["content"] = [_part(item["content"], item["role"])]
    if kind == "reasoning":
        whole.setdefault("summary", [])
    return whole


def _part(text: str, role: str) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def _start(listed: list[dict[str, Any]], after: str | None) -> int:
    if after is None:
        return 0
    places = [i for i, item in enumerate(listed) if item["id"] == after]
    if not places:
        raise _wrong("after", after, "the id of a listed item")
    return places[0] + 1


def _limit(value: str | None) -> int:
    if value is None:
        return DEFAULT_LIMIT
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:4]) <= MAX_LIMIT):
        raise _wrong("limit", value, f"an integer of 1 to {MAX_LIMIT}")
    return int(value)


def _wrong(key: str, value: str, wanted: str) -> RequestError:
    return RequestError(f"{key!r} is {value[:100]!r}.", hint=f"It must be {wanted}.", parameter=key)
