"""Held-out sums, and whether the agent began by adding the first two numbers with its tool."""

from __future__ import annotations

import json
import random
from typing import Any


def items(count: int, seed: int) -> list[dict[str, Any]]:
    """``count`` different sums of two or three numbers of the same length."""
    rng = random.Random(f"tool-first/held-out/{seed}")  # noqa: S311 - problems, not secrets
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        digits = rng.randint(2, 3)
        low, high = 10 ** (digits - 1), 10**digits - 1
        found[tuple(rng.randint(low, high) for _ in range(rng.randint(2, 3)))] = None
    return [
        {
            "item_id": f"held-out-{n}",
            "payload": {"operands": list(operands)},
            "answer": f"{operands[0]}+{operands[1]}",
        }
        for n, operands in enumerate(found)
    ]


def score(item: dict[str, Any], trace: dict[str, Any]) -> float:
    """1 when the first answer is one call of the tool with the wanted sum, else 0."""
    calls = trace["calls"]
    if not calls:
        return 0.0
    used: list[dict[str, Any]] = calls[0]["reply"].get("tool_calls") or []
    if len(used) != 1:
        return 0.0
    try:
        expression = json.loads(used[0]["function"]["arguments"])["expression"]
    except (ValueError, KeyError, TypeError):
        return 0.0
    return float(expression == item["answer"])
