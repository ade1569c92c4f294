"""Demonstrations of the calculator game, as text with marks of what the model itself would write.

The demonstrator is imperfect on purpose: with probability ``mental`` a turn gives up the tool and answers the true sum
at once (which a model of this size mostly cannot compute), with probability ``slip`` it adds the wrong operand.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SYSTEM = "Use the tool to add two numbers."


@dataclass(frozen=True)
class Dialect:
    """How one model's chat template writes the game; a test compares it with the template."""

    opening: str
    """Everything before the first operand."""
    turn: str
    """From the end of the user's or the tool's text to the start of the assistant's."""
    call: tuple[str, str]
    """Around the expression of a tool call."""
    end: str
    """Ends each text of the assistant."""
    result: str
    """From that end to the text of the tool."""


CHATML = Dialect(
    opening=f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nCompute ",
    turn="<|im_end|>\n<|im_start|>assistant\n",
    call=("<tool_call>", "</tool_call>"),
    end="<|im_end|>",
    result="\n<|im_start|>tool\n",
)


@dataclass(frozen=True)
class Segment:
    """A piece of a transcript; ``answer`` marks what the assistant writes (its loss weighs fully)."""

    text: str
    answer: bool


def draw_problem(rng: random.Random) -> tuple[int, ...]:
    """Two to four operands, all with the same one to four digits."""
    digits = rng.choice((1, 2, 3, 4))
    operands = rng.choice((2, 3, 4))
    return tuple(rng.randint(10 ** (digits - 1), 10**digits - 1) for _ in range(operands))


def draw_demo(
    rng: random.Random, *, mental: float, slip: float, dialect: Dialect = CHATML
) -> list[Segment]:
    """One transcript, from the system message to the final answer. Advances ``rng``."""
    problem = draw_problem(rng)
    question = "+".join(map(str, problem)) + "." + dialect.turn
    segments = [Segment(dialect.opening, False), Segment(question, False)]
    total = problem[0]
    for operand in problem[1:]:
        if rng.random() < mental:
            segments.append(Segment(f"{sum(problem)}{dialect.end}", True))
            return segments
        added = rng.choice(problem) if rng.random() < slip else operand
        before, after = dialect.call
        segments.append(Segment(f"{before}{total}+{added}{after}{dialect.end}", True))
        total += added
        segments.append(Segment(f"{dialect.result}{total}{dialect.turn}", False))
    segments.append(Segment(f"{total}{dialect.end}", True))
    return segments
