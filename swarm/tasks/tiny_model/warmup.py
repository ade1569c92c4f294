"""Supervised warm-up of the tiny model on drawn demonstrations: AdamW, short ramp, cosine down to a twentieth.

Fixed seeds, one thread, float32: the same machine and library versions give the same bits.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from tokenizers import Tokenizer
from torch import Tensor

from swarm.server.engine.model import Llama
from swarm.tasks.tiny_model.demos import Segment

logger = logging.getLogger(__name__)

CONTEXT_WEIGHT = (
    0.05  # prompt tokens weigh a little, so that the text around the answers is learned too
)
RAMP_STEPS = 50
DrawDemo = Callable[[random.Random], list[Segment]]


@dataclass(frozen=True)
class Phase:
    """One stretch of the warm-up."""

    name: str
    steps: int
    lr: float
    seed: int
    draw: DrawDemo
    batch: int = 48


def encode(tokenizer: Tokenizer, demo: list[Segment]) -> tuple[list[int], list[int]]:
    """Ids of a demo and, per id, 1 where the assistant wrote it."""
    ids: list[int] = []
    answer: list[int] = []
    for segment in demo:
        piece = tokenizer.encode(segment.text, add_special_tokens=False).ids
        ids += piece
        answer += [int(segment.answer)] * len(piece)
    return ids, answer


def run_phase(model: Llama, tokenizer: Tokenizer, phase: Phase) -> float:
    """Train ``model`` in place; returns the last running mean of the loss on the assistant's tokens."""
    rng = random.Random(phase.seed)  # noqa: S311
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=phase.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    running = math.nan
    for step in range(phase.steps):
        _set_lr(optimizer, phase, step)
        ids, answer = _draw_batch(tokenizer, phase, rng)
        losses, weights = _losses(model, ids, answer)
        loss = (losses * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        on_answers = float((losses.detach() * answer[:, 1:]).sum() / answer[:, 1:].sum())
        running = on_answers if math.isnan(running) else 0.95 * running + 0.05 * on_answers
        if (step + 1) % 50 == 0:
            cpu = time.process_time()
            logger.info(
                "%s %d/%d loss %.3f cpu %.0fs", phase.name, step + 1, phase.steps, running, cpu
            )
    return running


def _set_lr(optimizer: torch.optim.Optimizer, phase: Phase, step: int) -> None:
    cosine = 0.5 * (1 + math.cos(math.pi * step / phase.steps))
    for group in optimizer.param_groups:
        group["lr"] = phase.lr * min(1, (step + 1) / RAMP_STEPS) * (cosine * 0.95 + 0.05)


def _draw_batch(tokenizer: Tokenizer, phase: Phase, rng: random.Random) -> tuple[Tensor, Tensor]:
    demos = [encode(tokenizer, phase.draw(rng)) for _ in range(phase.batch)]
    length = max(len(ids) for ids, _ in demos)
    ids_B_T = torch.zeros(phase.batch, length, dtype=torch.long)  # noqa: N806
    answer_B_T = torch.zeros(phase.batch, length)  # noqa: N806
    for row, (ids, answer) in enumerate(demos):
        ids_B_T[row, : len(ids)] = torch.tensor(ids)
        answer_B_T[row, : len(ids)] = torch.tensor(answer, dtype=torch.float32)
    return ids_B_T, answer_B_T


def _losses(model: Llama, ids: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each next token and its weight, both [B, T - 1]; padding (id 0) weighs nothing."""
    targets = ids[:, 1:]
    logits = model(ids[:, :-1])
    flat = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    mask = answer[:, 1:]
    weights = mask + CONTEXT_WEIGHT * (targets != 0).float() * (1 - mask)
    return flat.view_as(targets), weights
