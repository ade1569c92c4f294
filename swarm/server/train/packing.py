"""Turns rows into padded tensors of bounded size.

How rows are packed changes the result only by float rounding: each token's weight is fixed before packing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from swarm.server.ports import TrainRow
from swarm.server.train.replaying import Replay, replays_of


@dataclass(frozen=True)
class Pack:
    """Some rows as tensors. Trained tokens are flat, N of them, in row order.

    ``row_N`` and ``source_N`` say where to read the hidden state that predicts token N (one position before it).
    ``keys`` and ``counts`` name the rows and how many trained tokens each has.
    """

    keys: list[str]
    counts: list[int]

    ids_B_T: Tensor  # noqa: N815
    row_N: Tensor  # noqa: N815
    source_N: Tensor  # noqa: N815
    target_N: Tensor  # noqa: N815
    old_logprob_N: Tensor  # noqa: N815
    temperature_N: Tensor  # noqa: N815
    advantage_N: Tensor  # noqa: N815
    weight_N: Tensor  # noqa: N815
    replays: list[Replay]
    """Tokens that were not sampled plainly."""


def group_rows(rows: Sequence[TrainRow], token_budget: int) -> list[list[TrainRow]]:
    """Sort by length (ties by key) and cut into groups of at most ``token_budget`` padded tokens; a longer row stands alone."""
    groups: list[list[TrainRow]] = []
    for row in sorted(rows, key=lambda r: (len(r.ids), r.key)):
        fits = bool(groups) and len(row.ids) * (len(groups[-1]) + 1) <= token_budget
        if not fits:
            groups.append([])
        groups[-1].append(row)
    return groups


def trained_tokens(row: TrainRow) -> int:
    """Tokens of the row that carry a loss."""
    return sum(span.end - span.start for span in row.spans)


def pack(rows: Sequence[TrainRow], device: torch.device | str = "cpu") -> Pack:
    """Pad rows on the right (id 0; no position looks to its right) and flatten what is trained.

    Raises:
        ValueError: Values a token that do not match the spans, or a span at position 0 or past the row's end.
    """
    length = max(len(row.ids) for row in rows)
    ids = [row.ids + [0] * (length - len(row.ids)) for row in rows]
    at: list[int] = []
    source: list[int] = []
    old: list[float] = []
    temperature: list[float] = []
    for index, row in enumerate(rows):
        _check(row)
        old += row.logprobs
        for span in row.spans:
            positions = range(span.start - 1, span.end - 1)
            source += positions
            at += [index] * len(positions)
            temperature += [span.temperature or 1.0] * len(positions)
    ids_B_T = torch.tensor(ids, device=device)  # noqa: N806
    row_N, source_N = torch.tensor(at, device=device), torch.tensor(source, device=device)  # noqa: N806
    real = {"dtype": torch.float32, "device": device}
    return Pack(
        keys=[row.key for row in rows],
        counts=[len(row.logprobs) for row in rows],
        ids_B_T=ids_B_T,
        row_N=row_N,
        source_N=source_N,
        target_N=ids_B_T[row_N, source_N + 1],
        old_logprob_N=torch.tensor(old, **real),
        temperature_N=torch.tensor(temperature, **real),
        advantage_N=torch.tensor([a for row in rows for a in _advantages(row)], **real),
        weight_N=torch.tensor([w for row in rows for w in token_weights(row)], **real),
        replays=replays_of(rows),
    )


def token_weights(row: TrainRow) -> list[float]:
    """Weight of each trained token in the loss: the row's, times the token's own."""
    if not row.weights:
        return [row.weight] * len(row.logprobs)
    return [row.weight * own for own in row.weights]


def _advantages(row: TrainRow) -> list[float]:
    return row.advantages or [row.advantage] * len(row.logprobs)


def _check(row: TrainRow) -> None:
    count = trained_tokens(row)
    if count != len(row.logprobs):
        msg = (
            f"Row {row.key!r} has {len(row.logprobs)} log-probabilities for {count} trained tokens."
        )
        raise ValueError(msg)
    for name, values in (("advantages", row.advantages), ("weights", row.weights)):
        if values and len(values) != count:
            msg = f"Row {row.key!r} has {len(values)} {name} for {count} trained tokens."
            raise ValueError(msg)
    if any(not 1 <= span.start <= span.end <= len(row.ids) for span in row.spans):
        msg = f"Row {row.key!r} has a span outside 1..{len(row.ids)}: {row.spans!r}."
        raise ValueError(msg)
