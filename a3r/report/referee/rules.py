"""The one list of rules: name, what it may say, how it looks. The report and the docs print it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from a3r.report.referee import consumption, learning, provenance, rewards
from a3r.report.referee.verdict import Answer
from a3r.report.referee.view import RunView


class Rule(NamedTuple):
    """One rule."""

    name: str
    excludes: bool
    """Whether it may call a run invalid."""
    check: Callable[[RunView], Answer]

    @property
    def meaning(self) -> str:
        """First line of its docstring: what is wrong when it speaks."""
        return (self.check.__doc__ or "").strip().split("\n")[0]


def _rule(check: Callable[[RunView], Answer], *, excludes: bool = False) -> Rule:
    return Rule(check.__name__, excludes, check)


RULES: tuple[Rule, ...] = (
    _rule(provenance.base_weights, excludes=True),
    _rule(provenance.final_weights, excludes=True),
    _rule(provenance.evaluator_seal, excludes=True),
    _rule(provenance.seed_proven, excludes=True),
    _rule(provenance.replicates, excludes=True),
    _rule(provenance.overlap, excludes=True),
    _rule(consumption.batch_size, excludes=True),
    _rule(consumption.staleness, excludes=True),
    _rule(consumption.lost_episodes),
    _rule(consumption.guarded_episodes),
    _rule(rewards.reward_hacking),
    _rule(rewards.reward_collapse),
    _rule(rewards.reward_plateau),
    _rule(rewards.length_drift),
    _rule(rewards.truncation),
    _rule(rewards.zero_variance),
    _rule(learning.entropy_collapse),
    _rule(learning.entropy_growth),
    _rule(learning.kl_runaway),
    _rule(learning.gradient_explosion),
    _rule(learning.gradient_vanished),
    _rule(learning.not_finite),
    _rule(learning.sampler_gap),
    _rule(learning.weights_stuck),
)
