"""A script that repairs the client of ``campaigns/broken-client``: what a model would see in the evidence, written down."""

from __future__ import annotations

import re

from a3r.core.llm import ModelRequest
from a3r.testing.stand_in.script import Answer, Script, by_task, said

BROKEN = re.compile(
    r'    return json\.loads\(\(HERE / "data" / f"order-\{seed\}\.json"\)\.read_text\(encoding="utf-8"\)\)\n'
)
MENDED = "    order = list(range(2048))\n    random.Random(seed).shuffle(order)\n    return order\n"
CLIENT = re.compile(r"^=== client\.py ===\n(.*?)(?=^=== |^>>>end )", re.MULTILINE | re.DOTALL)
EXPLANATION = (
    "training_order() reads a file that was made for one seed only. The order is now made by the same rule "
    "(a shuffle by the run's seed) instead of being read; the file is no longer needed."
)


def mend(request: ModelRequest) -> Answer:
    """The repaired client; a client that it does not know is answered with an empty repair."""
    shown = next((m.content for m in request.messages if CLIENT.search(m.content)), "")
    found = CLIENT.search(shown)
    code = found.group(1) if found else ""
    mended = BROKEN.sub(MENDED, code).replace(
        "import logging\n", "import logging\nimport random\n", 1
    )
    changed = [] if mended == code else [{"path": "client.py", "content": mended}]
    return said(
        {
            "explanation": EXPLANATION,
            "files": changed,
            "removed": ["data/order-0.json"] if changed else [],
        }
    )


def mending() -> Script:
    """The whole script: it knows the task ``repair`` only."""
    return by_task({"repair": mend})
