"""Log-probabilities of an update that stay fixed while the weights move, and the forward pass that all of them come from."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from swarm.server.ports import TrainRow
from swarm.server.train.packing import Pack, group_rows, pack
from swarm.server.train.replaying import replayed, truncated


class Policy(Protocol):
    """What the update needs of a model."""

    def hidden(self, ids_B_T: Tensor) -> Tensor:  # noqa: N803
        """Last hidden states [B, T, D]."""
        ...

    def head_weight(self) -> Tensor:
        """Output matrix [vocab_size, D]."""
        ...


def distributions(model: Policy, packed: Pack) -> Tensor:
    """Normalised log-probabilities at each trained token under the distribution that it was sampled from, [N, V]."""
    hidden = model.hidden(packed.ids_B_T[:, :-1])
    picked = hidden[packed.row_N, packed.source_N]
    logits = F.linear(picked, model.head_weight())
    if packed.replays:
        logits = replayed(logits, packed.replays)
    logits = logits / packed.temperature_N[:, None]
    if packed.replays:
        logits = truncated(logits, packed.replays)
    return F.log_softmax(logits, -1)


def chosen(logprobs_N_V: Tensor, packed: Pack) -> Tensor:  # noqa: N803
    """Of those, the ones of the tokens that were sampled, [N]."""
    return logprobs_N_V.gather(1, packed.target_N[:, None])[:, 0]


@dataclass
class Anchors:
    """Per row key, [trained tokens of the row]; empty when an update has no use for them."""

    reference: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Of the model that training began with."""
    start: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Of the policy before its first move."""

    def reference_N(self, packed: Pack) -> Tensor:  # noqa: N802
        """The reference's, in the order of the pack."""
        return torch.cat([self.reference[key] for key in packed.keys])

    def start_N(self, packed: Pack) -> Tensor | None:  # noqa: N802
        """The policy's before it moved, in the order of the pack; None when they were not kept."""
        return torch.cat([self.start[key] for key in packed.keys]) if self.start else None


def anchor(
    rows: Sequence[TrainRow],
    token_budget: int,
    *,
    reference: Any | None,
    start: Any | None,
) -> Generator[None, None, Anchors]:
    """Compute what is asked for (a model each, or None), yielding after every pack; returns the anchors.

    Raises:
        ValueError: Two rows of one key.
    """
    anchors = Anchors()
    asked = ((reference, anchors.reference), (start, anchors.start))
    wanted = [(model, kept) for model, kept in asked if model is not None]
    if not wanted:
        return anchors
    if len({row.key for row in rows}) < len(rows):
        msg = "Two rows of the batch have the same key."
        raise ValueError(msg)
    for group in group_rows(rows, token_budget):
        for model, kept in wanted:
            packed = pack(group, model.head_weight().device)
            with torch.no_grad():
                logprobs = chosen(distributions(model, packed), packed)
            kept.update(zip(packed.keys, logprobs.split(packed.counts), strict=True))
        yield
    return anchors
