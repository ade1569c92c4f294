"""The optimizer's step over one batch of rows. Same rows and same weights give the same bits (one thread, one machine).

It knows rows, weights and AdamW; advantages and normalisers arrive inside the rows.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from swarm.protocol.config import AlgorithmConfig, OptimizerConfig
from swarm.server.ports import TrainRow
from swarm.server.train.losses import entropy, ppo_clip
from swarm.server.train.packing import Pack, group_rows, pack, trained_tokens

TOKEN_BUDGET = 8192  # padded tokens of one forward pass


class Policy(Protocol):
    """What the update needs of a model."""

    def hidden(self, ids_B_T: Tensor) -> Tensor:  # noqa: N803
        """Last hidden states [B, T, D]."""
        ...

    def head_weight(self) -> Tensor:
        """Output matrix [vocab_size, D]."""
        ...


@dataclass(frozen=True)
class UpdateStats:
    """What one batch did; not-a-number stays what it is.

    ``loss`` and ``grad_norm`` (before clipping) are means over optimizer steps, ``clip_fraction`` and ``entropy`` over
    tokens; ``logprob_gap_max`` is from before the first move.
    """

    loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float = 0.0
    entropy: float = 0.0
    logprob_gap_max: float = 0.0
    tokens: int = 0
    rolled_back: str = ""
    cpu_s: float = 0.0


@dataclass
class Tally:
    """Sums over the tokens of one optimizer step."""

    loss: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0
    gap: float = 0.0
    tokens: int = 0

    def add(self, other: Tally) -> None:
        """Add sums; the gap is a maximum, and a NaN in it stays."""
        self.loss += other.loss
        self.clipped += other.clipped
        self.entropy += other.entropy
        self.gap = other.gap if math.isnan(other.gap) else max(self.gap, other.gap)
        self.tokens += other.tokens


@dataclass(frozen=True)
class Move:
    """One optimizer step: its sums, its gradient norm before clipping, and what was not finite (empty: all was)."""

    tally: Tally
    grad_norm: float
    broken: str


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over all parameters, constant learning rate."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
    )


class Updater:
    """Applies batches to a model, in place.

    Args:
        model: A module that is also a ``Policy``.
        optimizer: Its optimizer, see ``make_optimizer``.
        algorithm: Clip bounds, minibatches, epochs.
        grad_clip: Largest global gradient norm.
        token_budget: Padded tokens of one forward pass; changes the result by rounding only.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        algorithm: AlgorithmConfig,
        *,
        grad_clip: float,
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.algorithm = algorithm
        self.grad_clip = grad_clip
        self.token_budget = token_budget

    def apply(self, rows: Sequence[TrainRow]) -> UpdateStats:
        """Take one optimizer step per minibatch and epoch, or none at all.

        No rows: nothing moves. A loss, gradient or weight that is not finite: weights and optimizer are put back as they
        were before the batch and ``rolled_back`` says what was not finite.

        Raises:
            ValueError: A row whose spans and log-probabilities do not fit; nothing has moved then.
        """
        began = time.process_time()
        rows = sorted((r for r in rows if trained_tokens(r)), key=lambda r: r.key)
        if not rows:
            return UpdateStats()
        before = self._snapshot()
        moves: list[Move] = []
        try:
            for part in _minibatches(rows, self.algorithm.minibatches) * self.algorithm.epochs:
                moves.append(self._move(part, scale=_mass(rows) / _mass(part)))
                if moves[-1].broken:
                    self._restore(before)
                    break
        except BaseException:
            self._restore(before)
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(trained_tokens(row) for row in rows)
        return _summary(moves, tokens, time.process_time() - began)

    def accumulate(self, rows: Sequence[TrainRow], *, scale: float = 1.0) -> Tally:
        """Set the gradients to those of ``scale * sum(weight * token loss)`` over the rows; moves nothing."""
        self.optimizer.zero_grad(set_to_none=True)
        device = self.model.head_weight().device
        total = Tally()
        for group in group_rows(rows, self.token_budget):
            packed = pack(group, device)
            loss, tally = self._forward(packed)
            (loss * scale).backward()
            total.add(tally)
        return total

    def _forward(self, packed: Pack) -> tuple[Tensor, Tally]:
        hidden = self.model.hidden(packed.ids_B_T[:, :-1])
        picked = hidden[packed.row_N, packed.source_N]
        logits = F.linear(picked, self.model.head_weight()) / packed.temperature_N[:, None]
        all_logprobs = F.log_softmax(logits, -1)
        logprobs = all_logprobs.gather(1, packed.target_N[:, None])[:, 0]
        clipped = ppo_clip(
            logprobs,
            packed.old_logprob_N,
            packed.advantage_N,
            low=self.algorithm.clip_low,
            high=self.algorithm.clip_high,
        )
        loss = (packed.weight_N * clipped.loss).sum()
        with torch.no_grad():
            gap = (logprobs - packed.old_logprob_N).abs().max()
            tally = Tally(
                loss=float(loss),
                clipped=float(clipped.clipped.sum()),
                entropy=float(entropy(all_logprobs).sum()),
                gap=float(gap),
                tokens=len(packed.target_N),
            )
        return loss, tally

    def _move(self, rows: Sequence[TrainRow], *, scale: float) -> Move:
        """One optimizer step, left out when the loss or the gradient is not finite."""
        tally = self.accumulate(rows, scale=scale)
        tally.loss *= scale
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip))
        if not math.isfinite(tally.loss):
            return Move(tally, norm, f"loss is {tally.loss}")
        if not math.isfinite(norm):
            return Move(tally, norm, f"gradient norm is {norm}")
        self.optimizer.step()
        finite = all(bool(p.isfinite().all()) for p in self.model.parameters())
        return Move(tally, norm, "" if finite else "weights are not finite after the move")

    def _snapshot(self) -> tuple[list[Tensor], dict[str, Any]]:
        weights = [p.detach().clone() for p in self.model.parameters()]
        return weights, copy.deepcopy(self.optimizer.state_dict())

    @torch.no_grad()
    def _restore(self, before: tuple[list[Tensor], dict[str, Any]]) -> None:
        weights, optimizer = before
        for parameter, saved in zip(self.model.parameters(), weights, strict=True):
            parameter.copy_(saved)
        self.optimizer.load_state_dict(optimizer)


def _mass(rows: Sequence[TrainRow]) -> float:
    """Sum of the token weights, so that a minibatch is normalised like the whole batch."""
    return math.fsum(row.weight * trained_tokens(row) for row in rows) or 1.0


def _minibatches(rows: Sequence[TrainRow], count: int) -> list[list[TrainRow]]:
    """Cut into at most ``count`` parts with about as many episodes each, in key order; an episode's rows stay together."""
    episodes: dict[str, list[TrainRow]] = {}
    for row in rows:
        episodes.setdefault(row.episode_id, []).append(row)
    members = list(episodes.values())
    count = min(count, len(members))
    edges = [len(members) * i // count for i in range(count + 1)]
    return [
        [row for member in members[low:high] for row in member]
        for low, high in itertools.pairwise(edges)
    ]


def _summary(moves: list[Move], tokens: int, cpu_s: float) -> UpdateStats:
    seen = sum(m.tally.tokens for m in moves)
    return UpdateStats(
        loss=sum(m.tally.loss for m in moves) / len(moves),
        grad_norm=sum(m.grad_norm for m in moves) / len(moves),
        clip_fraction=sum(m.tally.clipped for m in moves) / seen,
        entropy=sum(m.tally.entropy for m in moves) / seen,
        logprob_gap_max=moves[0].tally.gap,
        tokens=tokens,
        rolled_back=moves[-1].broken,
        cpu_s=cpu_s,
    )
