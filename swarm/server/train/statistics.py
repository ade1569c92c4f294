"""What an update says of itself: sums over tokens while it runs, then one record."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateStats:
    """What one batch did; not-a-number stays what it is.

    ``loss`` and ``grad_norm`` (before clipping) are means over optimizer steps, ``clip_fraction``, ``entropy``, ``kl`` and
    ``importance_clipped_share`` over tokens; ``logprob_gap_max`` is from before the first move.
    """

    loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float = 0.0
    entropy: float = 0.0
    logprob_gap_max: float = 0.0
    tokens: int = 0
    kl: float | None = None
    """None = no reference model."""
    importance_clipped_share: float | None = None
    """None = no importance weights."""
    rolled_back: str = ""
    cpu_s: float = 0.0


@dataclass
class Tally:
    """Sums over the tokens of one optimizer step."""

    loss: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    truncated: float = 0.0
    gap: float = 0.0
    tokens: int = 0

    def add(self, other: Tally) -> None:
        """Add sums; the gap is a maximum, and a NaN in it stays."""
        self.loss += other.loss
        self.clipped += other.clipped
        self.entropy += other.entropy
        self.kl += other.kl
        self.truncated += other.truncated
        self.gap = other.gap if math.isnan(other.gap) else max(self.gap, other.gap)
        self.tokens += other.tokens


@dataclass(frozen=True)
class Move:
    """One optimizer step: its sums, its gradient norm before clipping, and what was not finite (empty: all was)."""

    tally: Tally
    grad_norm: float
    broken: str


def summary(
    moves: list[Move], tokens: int, *, has_kl: bool, weighted: bool, cpu_s: float
) -> UpdateStats:
    """Put the moves of a batch together: at least one, the last of which may be broken."""
    seen = sum(m.tally.tokens for m in moves)
    return UpdateStats(
        loss=sum(m.tally.loss for m in moves) / len(moves),
        grad_norm=sum(m.grad_norm for m in moves) / len(moves),
        clip_fraction=sum(m.tally.clipped for m in moves) / seen,
        entropy=sum(m.tally.entropy for m in moves) / seen,
        logprob_gap_max=moves[0].tally.gap,
        tokens=tokens,
        kl=sum(m.tally.kl for m in moves) / seen if has_kl else None,
        importance_clipped_share=sum(m.tally.truncated for m in moves) / seen if weighted else None,
        rolled_back=moves[-1].broken,
        cpu_s=cpu_s,
    )
