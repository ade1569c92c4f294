"""Turns rows into padded tensors of bounded size.

How rows are packed changes the result only by float rounding: each token's weight is fixed before packing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from swarm.server.ports import TrainRow


@dataclass(frozen=True)
class Pack:
    """Some rows as tensors. Trained tokens are flat, N of them, in row order.

    ``row_N`` and ``source_N`` say where to read the hidden state that predicts token N (one position before it).
    """

    ids_B_T: Tensor  # noqa: N815
    row_N: Tensor  # noqa: N815
    source_N: Tensor  # noqa: N815
    target_N: Tensor  # noqa: N815
    old_logprob_N: Tensor  # noqa: N815
    temperature_N: Tensor  # noqa: N815
    advantage_N: Tensor  # noqa: N815
    weight_N: Tensor  # noqa: N815


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
        ValueError: Log-probabilities that do not match the spans, or a span at position 0 or past the row's end.
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
        ids_B_T=ids_B_T,
        row_N=row_N,
        source_N=source_N,
        target_N=ids_B_T[row_N, source_N + 1],
        old_logprob_N=torch.tensor(old, **real),
        temperature_N=torch.tensor(temperature, **real),
        advantage_N=torch.tensor([row.advantage for row in rows], **real)[row_N],
        weight_N=torch.tensor([row.weight for row in rows], **real)[row_N],
    )


def _check(row: TrainRow) -> None:
    if trained_tokens(row) != len(row.logprobs):
        msg = f"Row {row.key!r} has {len(row.logprobs)} log-probabilities for {trained_tokens(row)} trained tokens."
        raise ValueError(msg)
    if any(not 1 <= span.start <= span.end <= len(row.ids) for span in row.spans):
        msg = f"Row {row.key!r} has a span outside 1..{len(row.ids)}: {row.spans!r}."
        raise ValueError(msg)
