"""Trained tokens that were not sampled plainly: their distribution is rebuilt as it was when they were drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from swarm.server.ports import SamplingParams, TrainRow
from swarm.server.train.adjusting import adjusted, adjusts, keep_only


@dataclass(frozen=True, slots=True)
class Replay:
    """How trained token ``index`` of a pack was sampled."""

    index: int
    params: SamplingParams
    prompt: list[int]
    answer: list[int]
    """Of the same answer, before this token."""
    kept: list[int]


def replays_of(rows: Sequence[TrainRow]) -> list[Replay]:
    """Return what has to be rebuilt, for the trained tokens of the rows in order; plain tokens need nothing."""
    return [replay for row, first in _placed(rows) for replay in _of_row(row, first)]


def replayed(logits_N_V: Tensor, replays: Sequence[Replay]) -> Tensor:  # noqa: N803
    """Return the logits with bias and penalties where tokens had them; before any temperature."""
    changing = [replay for replay in replays if adjusts(replay.params)]
    if not changing:
        return logits_N_V
    rows = list(logits_N_V.unbind(0))
    for replay in changing:
        rows[replay.index] = adjusted(
            rows[replay.index], replay.params, replay.prompt, replay.answer
        )
    return torch.stack(rows)


def truncated(logits_N_V: Tensor, replays: Sequence[Replay]) -> Tensor:  # noqa: N803
    """Return the logits with everything impossible that truncation had left out."""
    changing = [replay for replay in replays if replay.kept]
    if not changing:
        return logits_N_V
    rows = list(logits_N_V.unbind(0))
    for replay in changing:
        rows[replay.index] = keep_only(rows[replay.index], replay.kept)
    return torch.stack(rows)


def _placed(rows: Sequence[TrainRow]) -> Iterator[tuple[TrainRow, int]]:
    first = 0
    for row in rows:
        yield row, first
        first += sum(span.end - span.start for span in row.spans)


def _of_row(row: TrainRow, first: int) -> Iterator[Replay]:
    if not row.replays:
        return
    for span, sampling in zip(row.spans, row.replays, strict=True):
        needed = adjusts(sampling.params)
        for at in range(span.start, span.end):
            kept = sampling.kept[at - span.start] if sampling.kept else []
            if needed or kept:
                prompt = row.ids[sampling.prompt_start : sampling.answer_start] if needed else []
                answer = row.ids[sampling.answer_start : at] if needed else []
                yield Replay(first, sampling.params, prompt, answer, kept)
            first += 1
