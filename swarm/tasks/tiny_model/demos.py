"""Demonstrations of the calculator game, as text with marks of what the model itself would write.

The demonstrator is imperfect on purpose: with probability ``mental`` a turn gives up the tool and answers the true sum
at once (which a model of this size mostly cannot compute), with probability ``slip`` it adds the wrong operand.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SYSTEM = "Use the tool to add two numbers."
END = "<|im_end|>"
ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
PREAMBLE = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nCompute "


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


def draw_demo(rng: random.Random, *, mental: float, slip: float) -> list[Segment]:
    """One transcript, from the system message to the final answer. Advances ``rng``."""
    problem = draw_problem(rng)
    question = "+".join(map(str, problem)) + "." + ASSISTANT
    segments = [Segment(PREAMBLE, False), Segment(question, False)]
    total = problem[0]
    for operand in problem[1:]:
        if rng.random() < mental:
            segments.append(Segment(f"{sum(problem)}{END}", True))
            return segments
        added = rng.choice(problem) if rng.random() < slip else operand
        segments.append(Segment(f"<tool_call>{total}+{added}</tool_call>{END}", True))
        total += added
        segments.append(Segment(f"\n<|im_start|>tool\n{total}{ASSISTANT}", False))
    segments.append(Segment(f"{total}{END}", True))
    return segments
