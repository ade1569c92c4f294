"""The optimizer's step over one batch of rows. Same rows and same weights give the same bits (one thread, one machine).

It knows rows, weights and AdamW; advantages and normalisers arrive inside the rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from swarm.protocol.config import AlgorithmConfig, OptimizerConfig
from swarm.server.ports import TrainRow
from swarm.server.train.anchors import Anchors, Policy, anchor, chosen, distributions
from swarm.server.train.losses import entropy, k3, ppo_clip, truncated_importance
from swarm.server.train.minibatches import mass, minibatches
from swarm.server.train.packing import Pack, group_rows, pack, trained_tokens
from swarm.server.train.slices import ResultT, Slices, Stopwatch, finish
from swarm.server.train.statistics import Move, Tally, UpdateStats, summary

TOKEN_BUDGET = 8192  # padded tokens of one forward pass


@dataclass(frozen=True)
class Terms:
    """What a batch brings along beside its rows."""

    lr: float | None = None
    """None = the optimizer config's."""
    kl_coef: float | None = None
    """None = the algorithm's."""
    importance_cap: float | None = None
    """None: the ratio is towards the log-probabilities that the tokens were sampled with (PPO). A number: towards the
    policy as it is when the update begins, times the truncated importance weight of that policy (decoupled PPO: Hilton et
    al. 2021, arXiv:2110.00641)."""
    token_budget: int | None = None
    """None = the updater's; smaller means smaller pieces. Changes the result by rounding only."""


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
        algorithm: Clip bounds, minibatches, epochs, KL coefficient.
        grad_clip: Largest global gradient norm.
        reference: Returns the model that a KL penalty pulls towards; called when there is one to compute.
        token_budget: Padded tokens of one forward pass; changes the result by rounding only.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        algorithm: AlgorithmConfig,
        *,
        grad_clip: float,
        reference: Callable[[], Policy] | None = None,
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.algorithm = algorithm
        self.grad_clip = grad_clip
        self.reference = reference
        self.token_budget = token_budget
        self._lr = [group["lr"] for group in optimizer.param_groups]

    def apply(self, rows: Sequence[TrainRow], terms: Terms | None = None) -> UpdateStats:
        """Take one optimizer step per minibatch and epoch, or none at all.

        No rows: nothing moves. A loss, gradient or weight that is not finite: weights and optimizer are put back as they
        were before the batch and ``rolled_back`` says what was not finite.

        Raises:
            ValueError: A row whose spans and values a token do not fit, or a KL penalty without a reference model; nothing
                has moved then.
        """
        return finish(self.slices(rows, terms))

    def slices(self, rows: Sequence[TrainRow], terms: Terms | None = None) -> Slices[UpdateStats]:
        """``apply`` in pieces: a pass over one pack each. Closed before its end, it leaves weights and optimizer as they were."""
        watch = Stopwatch()
        rows = sorted((r for r in rows if trained_tokens(r)), key=lambda r: r.key)
        if not rows:
            return UpdateStats()
        update = _Update(self, terms or Terms(), watch)
        before = self._snapshot()
        moves: list[Move] = []
        try:
            self._set_lr(update.terms.lr)
            yield from update.fix(rows)
            for part in minibatches(rows, self.algorithm.minibatches) * self.algorithm.epochs:
                moves.append((yield from update.move(part, scale=mass(rows) / mass(part))))
                if moves[-1].broken:
                    self._restore(before)
                    break
        except BaseException:
            self._restore(before)
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(trained_tokens(row) for row in rows)
        return summary(
            moves,
            tokens,
            has_kl=bool(update.kl_coef),
            weighted=update.terms.importance_cap is not None,
            cpu_s=watch.read(),
        )

    def accumulate(
        self, rows: Sequence[TrainRow], terms: Terms | None = None, *, scale: float = 1.0
    ) -> Tally:
        """Set the gradients to those of ``scale * sum(weight * token loss)`` over the rows; moves nothing."""
        update = _Update(self, terms or Terms(), Stopwatch())
        finish(update.fix(rows))
        return finish(update.accumulate(rows, scale=scale))

    def _set_lr(self, lr: float | None) -> None:
        for group, own in zip(self.optimizer.param_groups, self._lr, strict=True):
            group["lr"] = own if lr is None else lr

    def _snapshot(self) -> tuple[list[Tensor], dict[str, Any]]:
        weights = [p.detach().clone() for p in self.model.parameters()]
        return weights, copy.deepcopy(self.optimizer.state_dict())

    @torch.no_grad()
    def _restore(self, before: tuple[list[Tensor], dict[str, Any]]) -> None:
        weights, optimizer = before
        for parameter, saved in zip(self.model.parameters(), weights, strict=True):
            parameter.copy_(saved)
        self.optimizer.load_state_dict(optimizer)


class _Update:
    """One batch on its way through an updater."""

    def __init__(self, updater: Updater, terms: Terms, watch: Stopwatch) -> None:
        algorithm = updater.algorithm
        self.terms = terms
        self.kl_coef = algorithm.kl_coef if terms.kl_coef is None else terms.kl_coef
        self._updater = updater
        self._watch = watch
        self._budget = terms.token_budget or updater.token_budget
        self._several = algorithm.minibatches * algorithm.epochs > 1
        self._anchors = Anchors()

    def fix(self, rows: Sequence[TrainRow]) -> Slices[None]:
        """Compute what stays fixed while the weights move."""
        reference = None
        if self.kl_coef:
            if self._updater.reference is None:
                msg = f"kl_coef is {self.kl_coef:g} and there is no reference model."
                raise ValueError(msg)
            reference = self._updater.reference()
        keep_start = self.terms.importance_cap is not None and self._several
        work = anchor(
            rows,
            self._budget,
            reference=reference,
            start=self._updater.model if keep_start else None,
        )
        self._anchors = yield from self._paused(work)

    def move(self, rows: Sequence[TrainRow], *, scale: float) -> Slices[Move]:
        """One optimizer step, left out when the loss or the gradient is not finite."""
        model = self._updater.model
        tally = yield from self.accumulate(rows, scale=scale)
        tally.loss *= scale
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), self._updater.grad_clip))
        if not math.isfinite(tally.loss):
            return Move(tally, norm, f"loss is {tally.loss}")
        if not math.isfinite(norm):
            return Move(tally, norm, f"gradient norm is {norm}")
        self._updater.optimizer.step()
        yield from self._watch.pause()
        finite = all(bool(p.isfinite().all()) for p in model.parameters())
        return Move(tally, norm, "" if finite else "weights are not finite after the move")

    def accumulate(self, rows: Sequence[TrainRow], *, scale: float) -> Slices[Tally]:
        """Gradients of the rows, a pack at a time."""
        self._updater.optimizer.zero_grad(set_to_none=True)
        device = self._updater.model.head_weight().device
        total = Tally()
        for group in group_rows(rows, self._budget):
            loss, tally = self._forward(pack(group, device))
            (loss * scale).backward()
            total.add(tally)
            yield from self._watch.pause()
        return total

    def _forward(self, packed: Pack) -> tuple[Tensor, Tally]:
        algorithm, cap = self._updater.algorithm, self.terms.importance_cap
        all_logprobs = distributions(self._updater.model, packed)
        logprobs = chosen(all_logprobs, packed)
        tally = Tally(tokens=len(packed.target_N))
        old, weight_N = packed.old_logprob_N, packed.weight_N  # noqa: N806
        if cap is not None:
            start_N = self._anchors.start_N(packed)  # noqa: N806
            start_N = logprobs.detach() if start_N is None else start_N  # noqa: N806
            importance = truncated_importance(start_N, old, cap=cap)
            tally.truncated = float(importance.truncated.sum())
            old, weight_N = start_N, weight_N * importance.weight  # noqa: N806
        clipped = ppo_clip(
            logprobs, old, packed.advantage_N, low=algorithm.clip_low, high=algorithm.clip_high
        )
        loss = (weight_N * clipped.loss).sum()
        if self.kl_coef:
            distance = k3(logprobs, self._anchors.reference_N(packed))
            loss = loss + self.kl_coef * (packed.weight_N * distance).sum()
            tally.kl = float(distance.detach().sum())
        with torch.no_grad():
            tally.loss = float(loss)
            tally.clipped = float(clipped.clipped.sum())
            tally.entropy = float(entropy(all_logprobs).sum())
            tally.gap = float((logprobs - packed.old_logprob_N).abs().max())
        return loss, tally

    def _paused(self, work: Slices[ResultT]) -> Slices[ResultT]:
        """Yield where ``work`` does, with the watch standing still."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value
            yield from self._watch.pause()
