"""The numbers of a step: a ledger filled while it collects, and the record made when it is done. Missing is None, never 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from swarm.protocol.records import CallRecord, StepMetrics
from swarm.protocol.states import FateReason, FinishReason
from swarm.server.ports import TrainResult
from swarm.server.tracking.account import Fate, TokenAccount, dropped, sampled_tokens


class Marks(NamedTuple):
    """What an episode's prompts were like, besides its calls."""

    divergences: int = 0
    """Prompts that did not extend what the server had sampled."""
    context_overflows: int = 0
    """Calls that were refused because their prompt was too long."""

    def plus(self, other: Marks) -> Marks:
        """Return both together."""
        return Marks(*map(sum, zip(self, other, strict=True)))


def guarded_tokens(calls: Sequence[CallRecord]) -> int:
    """Return how many control tokens the messages of ``calls`` spelled."""
    return sum(call.guarded for call in calls)


def guard_findings(calls: Sequence[CallRecord]) -> list[str]:
    """Return what the episode guard found in any of the calls of an episode, each once, sorted."""
    return sorted({found for call in calls for found in call.guard})


@dataclass(slots=True)
class Ledger:
    """What was sampled for the open step: every train episode that ended is booked once, by ``leave_out`` or ``book``."""

    account: TokenAccount = field(default_factory=TokenAccount)
    episodes_dropped: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Those of evaluation, which are no agent's."""
    calls: int = 0
    guarded: int = 0
    guard: Counter[str] = field(default_factory=Counter[str])
    """Episodes by what the episode guard found in them and did."""
    marks: Marks = field(default_factory=Marks)

    def restore_drop(self, event: Mapping[str, Any]) -> None:
        """Book an episode that was left out before this process began, from the event that told of it."""
        self.account.merge(event.get("agents") or {"": event["tokens"]})
        self.episodes_dropped[event["reason"]] += 1
        self.calls += event["calls"]
        self.guarded += event.get("guarded", 0)
        self.guard.update(event.get("guard", ()))
        self.marks = self.marks.plus(Marks(event["divergences"], event.get("context_overflows", 0)))

    def add_eval(self, calls: Sequence[CallRecord]) -> None:
        """Book an evaluation episode: its tokens count, as never trained; its calls are not the step's."""
        self.tokens[dropped(FateReason.EVAL).key] += sampled_tokens(calls)

    def token_counts(self) -> dict[str, int]:
        """Return the account: fate -> sampled tokens, only what occurred."""
        total = Counter(self.account.counts) + self.tokens
        return dict(sorted(total.items()))

    def agent_counts(self) -> dict[str, dict[str, int]]:
        """Return the account of each agent; empty when no call was made with an agent's key."""
        found = self.account.by_agent
        return found if set(found) - {""} else {}

    def add_orphans(self, tokens: int, reason: FateReason, agent: str = "") -> None:
        """Book what a call sampled that ended after its episode: no trace holds it."""
        self.account.merge({agent: {dropped(reason).key: tokens}})

    def roll_back(self) -> None:
        """Book what had trained as masked: the engine undid the update."""
        self.account.undo_training()

    def leave_out(
        self,
        calls: Sequence[CallRecord],
        fates: Sequence[Fate],
        marks: Marks,
        reason: FateReason,
    ) -> TokenAccount:
        """Book an episode that no batch will take; returns the account of this one."""
        self.episodes_dropped[reason.value] += 1
        self.book(calls, fates, marks)
        own = TokenAccount()
        own.add(calls, fates)
        return own

    def book(self, calls: Sequence[CallRecord], fates: Sequence[Fate], marks: Marks) -> None:
        """Book an episode by the fates of its calls."""
        self.account.add(calls, fates)
        self.calls += len(calls)
        self.guarded += guarded_tokens(calls)
        self.guard.update(guard_findings(calls))
        self.marks = self.marks.plus(marks)


@dataclass(slots=True)
class Consumed:
    """What a step's batch was made of."""

    groups: int
    rewards: list[float]
    """One a consumed episode that was told one for all its agents."""
    zero_advantage: int
    """Consumed episodes in groups whose rewards are all equal."""
    calls: list[list[CallRecord]]
    """Of each consumed episode."""
    rows: int
    task_sets: dict[str, int] = field(default_factory=dict[str, int])
    """Groups (C1: episodes) of each task set."""
    clients: dict[str, int] = field(default_factory=dict[str, int])
    """Episodes of each client."""
    agents: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Rewards of each agent, one an episode; empty when no episode had agents."""
    groups_tried: int = 0
    """Groups that the step had opened, dropped ones too."""
    sizes: list[int] = field(default_factory=list[int])
    """Members of each consumed group; ``calls`` has them in this order."""

    def by_group(self) -> list[list[list[CallRecord]]]:
        """Return the calls of each member of each group."""
        members = iter(self.calls)
        return [[next(members) for _ in range(size)] for size in self.sizes]


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
    lr: float | None = None,
) -> StepMetrics:
    """Return the record of a completed step; ``result`` is None when nothing was trainable, ``lr`` is the batch's."""
    calls = [call for episode in consumed.calls for call in episode]
    sampled = sum(len(call.sampled_ids) for call in calls)
    truncated = sum(call.finish_reason == FinishReason.LENGTH for call in calls)
    episodes = len(consumed.calls)
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
        divergences=ledger.marks.divergences,
        guarded=ledger.guarded,
        guard=dict(sorted(ledger.guard.items())),
        context_overflows=ledger.marks.context_overflows,
        fingerprint=fingerprint,
        rollout_s=timing.rollout_s,
        drain_s=timing.drain_s,
        update_s=timing.update_s,
        sampling_cpu_s=_finite(result and result.sampling_cpu_s),
        update_cpu_s=_finite(result and result.update_cpu_s),
        front_cpu_s=timing.front_cpu_s,
        finished_at=timing.finished_at,
        lr=lr if result is not None else None,
        kl=_finite(result and result.kl),
        importance_clipped_share=_finite(result and result.importance_clipped_share),
        rolled_back=result.rolled_back if result else "",
        eval_round=eval_round,
        task_sets=consumed.task_sets,
        clients=consumed.clients,
        agents={agent: math.fsum(r) / len(r) for agent, r in consumed.agents.items()},
        agent_tokens=ledger.agent_counts(),
        groups_tried=consumed.groups_tried,
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
