"""What a request of an agent may hold at most: enough for any conversation that fits a model, too little to hold up the others.

Parsing a body and walking through it happen on the loop that serves everybody.
"""

from __future__ import annotations

from typing import Any

from swarm.protocol.errors import BodyTooLarge

MAX_BYTES = 32 * 1024 * 1024
MAX_COMMAS = 2_000_000
"""Bounds the values of a body before it is parsed; also token ids of a bare prompt."""
MAX_CONTAINERS = 200_000
"""Objects and lists; braces inside of strings count as well."""
MAX_ITEMS = 16_384
"""Messages, items or tools in one list."""
MAX_DEPTH = 64
"""Levels of nesting, of a tool's schema for example."""


def check_size(raw: bytes) -> int:
    """Look at a body before it is parsed; returns how many containers it has at most.

    Raises:
        BodyTooLarge: it has more values than any request needs.
    """
    containers = raw.count(b"{") + raw.count(b"[")
    if containers > MAX_CONTAINERS or raw.count(b",") > MAX_COMMAS:
        raise BodyTooLarge(
            f"The body holds more than {MAX_CONTAINERS} objects and lists, or {MAX_COMMAS} values.",
            hint="Shorten the conversation; the model's context is far smaller.",
        )
    return containers


def check_shape(body: dict[str, Any], containers: int) -> None:
    """Look at a parsed body with ``containers`` objects and lists at most.

    Raises:
        BodyTooLarge: a list with too many objects, or values nested too deep.
    """
    for key, value in body.items():
        if isinstance(value, list) and len(value) > MAX_ITEMS and not isinstance(value[0], int):
            raise BodyTooLarge(
                f"{key!r} has {len(value)} elements; at most {MAX_ITEMS} are read.",
                hint="Shorten the conversation.",
                parameter=key,
            )
    if containers > MAX_DEPTH and deeper_than(body, MAX_DEPTH):
        raise BodyTooLarge(
            f"The body is nested deeper than {MAX_DEPTH} levels.",
            hint="Flatten the schema of the tool, or the value that is so deep.",
        )


def deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and objects lie in each other more than ``levels`` deep; level by level, without recursion."""
    at = [value] if isinstance(value, dict | list) else []
    for _ in range(levels if at else 0):
        at = [
            inner
            for outer in at
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not at:
            return False
    return bool(at)
