"""A script that leads ``campaigns/in-prose`` from its words to its report: it reads, plans, writes the client, interprets.

What a model would do within the rails, written down. The client's files lie in ``tool_first``.
"""

from __future__ import annotations

import json
import random
from importlib import resources
from typing import Any

from a3r.core.llm import ModelRequest
from a3r.testing.stand_in.planner_script import careful_planner
from a3r.testing.stand_in.script import Answer, Script, said
from a3r.testing.stand_in.tool_first import evaluation

READING: dict[str, Any] = {
    "front_matter": {
        "question": {"kind": "minimum", "factor": "train_batch_size"},
        "task": "tool first",
        "model": "builtin:tiny-calc",
        "factors": {"train_batch_size": {"range": [4, 16]}},
        "criterion": {"min_gain": 0.1, "confidence": 0.9},
        "metric": {"items": 40},
        "settings": {"steps": 12, "group_size": 4, "learning_rate": 1.2e-3},
        "seeds": {"coarse": 2, "replicate": 3},
        "budget": {"max_runs": 24, "max_stages": 6, "llm_usd": 1},
    },
    "sources": [
        {
            "key": "question",
            "quote": "Find the minimum train_batch_size from 4 to 16 that still teaches",
        },
        {"key": "model", "quote": "Model: builtin:tiny-calc"},
        {"key": "factors.train_batch_size", "quote": "train_batch_size from 4 to 16"},
        {"key": "criterion.min_gain", "quote": "rises by more than 0.1"},
        {"key": "criterion.confidence", "quote": "Confidence: 0.9"},
        {"key": "metric.items", "quote": "Evaluate on 40 held-out items"},
        {"key": "settings.steps", "quote": "Max steps: 12"},
        {"key": "settings.group_size", "quote": "group_size 4"},
        {"key": "settings.learning_rate", "quote": "learning_rate 1.2e-3"},
        {"key": "seeds.coarse", "quote": "2 seeds to look"},
        {"key": "seeds.replicate", "quote": "3 fresh seeds to confirm"},
        {"key": "budget.max_runs", "quote": "at most 24 runs"},
        {"key": "budget.max_stages", "quote": "6 stages"},
        {"key": "budget.llm_usd", "quote": "1 USD for the language model"},
    ],
    "assumptions": [
        {
            "key": "task",
            "because": "The goal describes an environment of its own and gives it no name.",
        }
    ],
}
PROTOCOL = "share of held-out sums that the agent begins with one call of its tool on the first two numbers"
HELD_OUT = 2000
"""Items of the held-out stream that training never draws: more than an evaluation asks for."""
TRAINING = 512


def prose_study() -> Script:
    """The whole script."""
    return careful_planner({"understand": _read, "write_client": _write})


def _read(_: ModelRequest) -> Answer:
    return said(READING)


def _write(_: ModelRequest) -> Answer:
    return said(
        {
            "client": [
                {"path": "client.py", "content": _file("client.py")},
                {"path": "data/train.jsonl", "content": training_rows()},
            ],
            "evaluator": [{"path": "evaluation.py", "content": _file("evaluation.py")}],
            "protocol": PROTOCOL,
        }
    )


def training_rows(seed: int = 0) -> str:
    """The training data: lines of JSON, none of them one of the held-out stream of ``seed``."""
    held_out = {tuple(i["payload"]["operands"]) for i in evaluation.items(HELD_OUT, seed)}
    rng = random.Random("tool-first/train")  # noqa: S311 - problems, not secrets
    rows: dict[tuple[int, ...], None] = {}
    while len(rows) < TRAINING:
        digits = rng.randint(2, 3)
        low, high = 10 ** (digits - 1), 10**digits - 1
        operands = tuple(rng.randint(low, high) for _ in range(rng.randint(2, 3)))
        if operands not in held_out:
            rows[operands] = None
    return "".join(
        json.dumps({"id": f"train-{n}", "operands": list(operands)}) + "\n"
        for n, operands in enumerate(rows)
    )


def _file(name: str) -> str:
    return (resources.files("a3r.testing.stand_in") / "tool_first" / name).read_text("utf-8")
