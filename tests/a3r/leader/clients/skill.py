"""The files that the skill itself shows, with the training data that it speaks of."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

SKILL = Path(__file__).parents[4] / "skills" / "write-client" / "SKILL.md"
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown() -> tuple[str, str]:
    """client.py and evaluation.py."""
    client, evaluation = CODE.findall(SKILL.read_text(encoding="utf-8"))
    return client, evaluation


def training_rows() -> str:
    rng = random.Random("train")
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(40)]
    return "".join(json.dumps({"id": f"t{n}", "word": w}) + "\n" for n, w in enumerate(words))


def written(**changes: str) -> dict:
    """What a model would hand in; ``changes`` replaces a file's content by its name without dots and folders."""
    client, evaluation = shown()
    return {
        "client": [
            {"path": "client.py", "content": changes.get("client", client)},
            {"path": "data/train.jsonl", "content": changes.get("train", training_rows())},
        ],
        "evaluator": [{"path": "evaluation.py", "content": changes.get("evaluation", evaluation)}],
        "protocol": "share of held-out words that the last answer reverses exactly",
    }
