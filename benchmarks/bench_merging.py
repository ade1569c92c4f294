"""Update time of merged rows against one row a call, beside the ratio of their tokens, for conversations of 4 and 8 turns."""

from __future__ import annotations

import copy

import torch
from common import best_of, write_result
from torch import nn

from swarm.protocol.config import TrainConfig
from swarm.protocol.records import CallRecord
from swarm.server.engine.weights import load_model
from swarm.server.model_files import resolve_model
from swarm.server.ports import Span, TrainRow
from swarm.server.tracking.merge import build_rows
from swarm.server.train.update import Updater, make_optimizer

EPISODES = 48
ANSWER, OBSERVATION, SYSTEM = 12, 14, 24


def conversation(turns: int, generator: torch.Generator) -> list[CallRecord]:
    """Calls of one episode: each prompt is the previous prompt, its answer and an observation."""

    def tokens(count: int) -> list[int]:
        return torch.randint(5, 300, (count,), generator=generator).tolist()

    prompt, calls = tokens(SYSTEM), []
    for index in range(turns):
        answer = tokens(ANSWER)
        calls.append(
            CallRecord(
                index=index, policy_version=0, messages=[], reply={"role": "assistant", "content": ""},
                finish_reason="stop", prompt_ids=prompt, sampled_ids=answer, logprobs=[-1.0] * ANSWER,
                temperature=1.0, max_tokens=ANSWER,
            )
        )  # fmt: skip
        prompt = prompt + answer + tokens(OBSERVATION)
    return calls


def rows_of(episodes: list[list[CallRecord]], *, merged: bool) -> list[TrainRow]:
    """Training rows, advantages of alternating sign, one global normaliser."""
    total = sum(len(call.sampled_ids) for calls in episodes for call in calls)
    rows: list[TrainRow] = []
    for number, calls in enumerate(episodes):
        parts = (
            [(row.ids, row.spans, row.logprobs) for row in build_rows(calls, "token").rows]
            if merged
            else [
                (
                    call.prompt_ids + call.sampled_ids,
                    [Span(len(call.prompt_ids), len(call.prompt_ids) + ANSWER, 1.0)],
                    call.logprobs,
                )
                for call in calls
            ]
        )
        for part, (ids, spans, logprobs) in enumerate(parts):
            advantage = 1.0 if number % 2 else -1.0
            rows.append(
                TrainRow(
                    f"{number:03d}/{part}", str(number), ids, spans, logprobs, advantage, 1 / total
                )
            )
    return rows


def update(base: nn.Module, config: TrainConfig, rows: list[TrainRow]) -> float:
    """One update of a copy of the model; return the gradient's norm."""
    model = copy.deepcopy(base)
    optimizer = make_optimizer(model, config.optimizer)
    clip = config.optimizer.grad_clip
    return Updater(model, optimizer, config.algorithm, grad_clip=clip).apply(rows).grad_norm


def main() -> None:
    """Measure 4 and 8 turns."""
    torch.set_num_threads(1)
    config = TrainConfig()
    base = load_model(resolve_model("builtin:tiny-calc"), max_len=512)
    figures = []
    for turns in (4, 8):
        generator = torch.Generator().manual_seed(turns)
        episodes = [conversation(turns, generator) for _ in range(EPISODES)]
        walls, tokens, norms = {}, {}, {}
        for merged in (True, False):
            rows = rows_of(episodes, merged=merged)
            tokens[merged] = sum(len(row.ids) for row in rows)
            norms[merged] = update(base, config, rows)
            walls[merged] = best_of(3, lambda rows=rows: update(base, config, rows))
        figures.append(
            {
                "turns": turns,
                "tokens_one_row_a_call": tokens[False],
                "tokens_merged": tokens[True],
                "token_ratio": round(tokens[False] / tokens[True], 2),
                "time_ratio": round(walls[False] / walls[True], 2),
                "merged_s": round(walls[True], 4),
                "gradient_norm_relative_difference": abs(norms[True] / norms[False] - 1),
            }
        )
    write_result("merging", "make bench", {"episodes": EPISODES, "rows": figures})


if __name__ == "__main__":
    main()
