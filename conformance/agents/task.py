"""The task that every framework gets, and the two tools. Needs nothing but the standard library: it runs in their environments."""

import os

BASE_URL = os.environ["OPENAI_BASE_URL"]
API_KEY = os.environ["OPENAI_API_KEY"]
ANTHROPIC_URL = BASE_URL.removesuffix("/v1")
MODEL = "gpt-4o"
"""Any name does: the server has one model."""
PROMPT = "What is (1701 + 2533) * (31415 + 27182)? Use the tools: add twice, then multiply."
ANSWER = "248099698"
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": NUMBERS, "required": ["a", "b"]}


def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two integers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a * b


TOOLS = {"add": add, "multiply": multiply}


def finish(answer: object) -> None:
    """Print the answer; the program fails when it is not the right one."""
    print(answer)
    if ANSWER not in str(answer):
        raise SystemExit(f"wrong answer: {answer!r}")
