"""From the rules that are on to what becomes of a finish: calls that do not train, rewards that are replaced, an episode that is out.

Pure. Only calls that would train are looked at, so nothing is found twice and a person's own masks stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swarm.protocol.config import GuardAction, GuardConfig
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.records import CallRecord
from swarm.server.service.guarding.rules import RULES
from swarm.server.tracking.account import TRAINED, call_fate
from swarm.server.tracking.tokenizer import ChatTokenizer

TOLD = "guard_reward_told"
"""Metric of an episode whose reward the guard replaced: what the client had told."""


@dataclass(frozen=True)
class Judgement:
    """What the guard found in one episode."""

    calls: list[CallRecord]
    """The episode's calls, those with findings marked; the same objects where nothing was found."""
    dropped: str = ""
    """Why the episode is out, in words; empty = it is not."""
    zeroed: frozenset[str] = frozenset()
    """Agents whose reward is replaced."""


def judge_episode(
    config: GuardConfig,
    tokenizer: ChatTokenizer,
    calls: Sequence[CallRecord],
    *,
    may_drop: bool = True,
) -> Judgement:
    """Apply every rule that is on to every call that would train; ``may_drop`` False: ``drop`` masks instead."""
    actions = config.actions()
    marked, zeroed, dropped = list(calls), set[str](), ""
    for at, call in enumerate(calls):
        if call_fate(call) != TRAINED:
            continue
        found = {
            rule: _allowed(action, may_drop=may_drop)
            for rule, action in actions.items()
            if RULES[rule](call, tokenizer, config)
        }
        if not found:
            continue
        told = [f"{rule}:{action}" for rule, action in found.items()]
        marked[at] = call.model_copy(update={"guard": told})
        if "zero" in found.values():
            zeroed.add(call.agent)
        if "drop" in found.values() and not dropped:
            rule = next(rule for rule, action in found.items() if action == "drop")
            dropped = f"episode_guard: {rule} in call {call.index}"
    return Judgement(marked, dropped, frozenset(zeroed))


def with_rewards_zeroed(
    request: FinishRequest, judgement: Judgement, value: float
) -> FinishRequest:
    """Return the finish with the rewards of the zeroed agents replaced; what was told stands in the metrics."""
    zeroed = judgement.zeroed
    if not zeroed:
        return request
    told = request.rewards.get("", request.reward) if zeroed == {""} else request.reward
    metrics = request.metrics if told is None else {**request.metrics, TOLD: told}
    if zeroed == {""} and not request.rewards:
        return request.model_copy(update={"reward": value, "metrics": metrics})
    rewards = {**request.rewards, **dict.fromkeys(sorted(zeroed), value)}
    return request.model_copy(update={"rewards": rewards, "metrics": metrics})


def _allowed(action: GuardAction, *, may_drop: bool) -> GuardAction:
    return "mask" if action == "drop" and not may_drop else action
