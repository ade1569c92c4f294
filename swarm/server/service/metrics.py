"""The numbers of a step: a ledger filled while it collects, and the record made when it is done. Missing is None, never 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swarm.protocol.messages import CallRecord, StepMetrics
from swarm.protocol.states import FateReason, FinishReason
from swarm.server.ports import TrainResult
from swarm.server.tracking.account import Fate, TokenAccount, dropped, sampled_tokens


@dataclass(slots=True)
class Ledger:
    """What was sampled for the open step: every train episode that ended is booked once, by ``leave_out`` or ``book``."""

    account: TokenAccount = field(default_factory=TokenAccount)
    episodes_dropped: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Counts that are known only as numbers: restored ones, and those of evaluation."""
    calls: int = 0
    divergences: int = 0

    def restore_drop(
        self, reason: str, tokens: Mapping[str, int], calls: int, divergences: int
    ) -> None:
        """Book an episode that was left out before this process began; ``tokens`` as ``leave_out`` returned them."""
        self.tokens.update(tokens)
        self.episodes_dropped[reason] += 1
        self.calls += calls
        self.divergences += divergences

    def add_eval(self, calls: Sequence[CallRecord]) -> None:
        """Book an evaluation episode: its tokens count, as never trained; its calls are not the step's."""
        self.tokens[dropped(FateReason.EVAL).key] += sampled_tokens(calls)

    def token_counts(self) -> dict[str, int]:
        """Return the account: fate -> sampled tokens, only what occurred."""
        total = Counter(self.account.counts) + self.tokens
        return dict(sorted(total.items()))

    def add_orphans(self, tokens: int, reason: FateReason) -> None:
        """Book what a call sampled that ended after its episode: no trace holds it."""
        if tokens:
            self.tokens[dropped(reason).key] += tokens

    def leave_out(
        self,
        calls: Sequence[CallRecord],
        fates: Sequence[Fate],
        divergences: int,
        reason: FateReason,
    ) -> dict[str, int]:
        """Book an episode that no batch will take; returns its sampled tokens by fate."""
        self.episodes_dropped[reason.value] += 1
        self.book(calls, fates, divergences)
        own = TokenAccount()
        own.add(calls, fates)
        return own.counts

    def book(self, calls: Sequence[CallRecord], fates: Sequence[Fate], divergences: int) -> None:
        """Book an episode by the fates of its calls."""
        self.account.add(calls, fates)
        self.calls += len(calls)
        self.divergences += divergences


@dataclass(slots=True)
class Consumed:
    """What a step's batch was made of."""

    groups: int
    rewards: list[float]
    """One a consumed episode."""
    zero_advantage: int
    """Consumed episodes in groups whose rewards are all equal."""
    calls: list[list[CallRecord]]
    """Of each consumed episode."""
    rows: int


@dataclass(slots=True)
class Timing:
    """Seconds of the step's phases; ``front_cpu_s`` is the CPU time of this process."""

    rollout_s: float
    drain_s: float
    update_s: float
    front_cpu_s: float
    finished_at: float


def step_metrics(
    *,
    step: int,
    version: int,
    fingerprint: str,
    consumed: Consumed,
    ledger: Ledger,
    result: TrainResult | None,
    timing: Timing,
    eval_round: str,
) -> StepMetrics:
    """Return the record of a completed step; ``result`` is None when nothing was trainable."""
    calls = [call for episode in consumed.calls for call in episode]
    sampled = sum(len(call.sampled_ids) for call in calls)
    truncated = sum(call.finish_reason == FinishReason.LENGTH for call in calls)
    episodes = len(consumed.rewards)
    return StepMetrics(
        step=step,
        policy_version=version,
        updated=result is not None and result.moved,
        groups=consumed.groups,
        episodes=episodes,
        reward_mean=_mean(consumed.rewards),
        reward_std=_std(consumed.rewards),
        zero_advantage_share=_share(consumed.zero_advantage, episodes),
        turns_mean=_share(len(calls), episodes),
        truncated_share=_share(truncated, len(calls)),
        response_tokens_mean=_share(sampled, len(calls)),
        loss=_finite(result and result.loss),
        grad_norm=_finite(result and result.grad_norm),
        clip_fraction=_finite(result and result.clip_fraction),
        entropy=_finite(result and result.entropy),
        logprob_gap_max=_finite(result and result.logprob_gap_max),
        tokens=ledger.token_counts(),
        rows=consumed.rows,
        calls=ledger.calls,
        episodes_dropped=dict(sorted(ledger.episodes_dropped.items())),
        divergences=ledger.divergences,
        fingerprint=fingerprint,
        rollout_s=timing.rollout_s,
        drain_s=timing.drain_s,
        update_s=timing.update_s,
        sampling_cpu_s=_finite(result and result.sampling_cpu_s),
        update_cpu_s=_finite(result and result.update_cpu_s),
        front_cpu_s=timing.front_cpu_s,
        finished_at=timing.finished_at,
        rolled_back=result.rolled_back if result else "",
        eval_round=eval_round,
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _std(values: Sequence[float]) -> float | None:
    mean = _mean(values)
    if mean is None:
        return None
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
