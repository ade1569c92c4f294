"""The account of sampled tokens: each ends up trained, masked or dropped, with one reason.

Fates are kept per call. Within a call that trains, single tokens may be left out by the client (``token_mask``); they are
counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from swarm.protocol.records import CallRecord
from swarm.protocol.states import FateReason, FinishReason, TokenFate


class Fate(NamedTuple):
    """What became of the sampled tokens of one call, and why."""

    fate: TokenFate
    reason: FateReason

    @property
    def key(self) -> str:
        """Name in ``StepMetrics.tokens``: ``"trained"`` or ``"<fate>:<reason>"``."""
        return self.fate.value if not self.reason else f"{self.fate.value}:{self.reason.value}"


MASKS = ":mask"
"""Ending of the entries of ``CallRecord.guard`` that keep a call from training."""
TRAINED = Fate(TokenFate.TRAINED, FateReason.NONE)


def masked(reason: FateReason) -> Fate:
    """Part of a row (or of a batch) but without a loss."""
    return Fate(TokenFate.MASKED, reason)


def dropped(reason: FateReason) -> Fate:
    """Never came near a batch."""
    return Fate(TokenFate.DROPPED, reason)


def call_fate(call: CallRecord) -> Fate:
    """Return the fate that a call has by itself, before its group and its episode are judged.

    An aborted call is dropped (its answer may have been cut anywhere). Masked are: one that its client excluded, a greedy
    one (temperature 0 has no usable log-probability), one whose sampling cannot be replayed, one all of whose tokens the client left out, one that the episode guard masked.
    Everything else can train. A call with no sampled token counts zero tokens either way.
    """
    if call.finish_reason == FinishReason.ABORT:
        return dropped(FateReason.ABORTED_CALL)
    if call.excluded:
        return masked(FateReason.EXCLUDED_CALL)
    if call.temperature == 0.0:
        return masked(FateReason.GREEDY)
    if not call.replayable:
        return masked(FateReason.SAMPLING)
    if call.token_mask and not any(call.token_mask):
        return masked(FateReason.CLIENT_MASK)
    if call.guard and any(found.endswith(MASKS) for found in call.guard):
        return masked(FateReason.GUARD)
    return TRAINED


def own_fates(calls: Sequence[CallRecord], agents: Mapping[str, bool]) -> list[Fate]:
    """Return the fate that each call has by itself and by its agent; ``agents`` says which of them train (others do)."""
    fates = [call_fate(call) for call in calls]
    untrained = masked(FateReason.AGENT_NOT_TRAINED)
    return [
        fate if agents.get(call.agent, True) or fate.fate is TokenFate.DROPPED else untrained
        for call, fate in zip(calls, fates, strict=True)
    ]


def whole_episode(
    calls: Sequence[CallRecord], fate: Fate, agents: Mapping[str, bool] | None = None
) -> list[Fate]:
    """Fates of an episode that does not train: every call is dropped (or masked) for that reason.

    Masking (zero advantage) leaves what a call already is by itself (greedy, aborted, of an agent that does not train);
    dropping overrides it.
    """
    if fate.fate is not TokenFate.MASKED:
        return [fate] * len(calls)
    return [fate if mine == TRAINED else mine for mine in own_fates(calls, agents or {})]


def with_fates(
    calls: Sequence[CallRecord],
    fates: Sequence[Fate],
    advantages: Sequence[list[float]] | None = None,
) -> list[CallRecord]:
    """Return copies of the calls with ``fate``, ``fate_reason`` and (where told) ``advantages`` filled in, in the same order."""
    told = advantages or [[]] * len(calls)
    return [
        call.model_copy(
            update={"fate": fate.fate, "fate_reason": fate.reason, "advantages": values}
        )
        for call, fate, values in zip(calls, fates, told, strict=True)
    ]


def rolled_back(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """Return the calls of a consumed episode after its update was undone: what had trained is masked, and has no advantage."""
    undone = masked(FateReason.ROLLED_BACK)
    update = {"fate": undone.fate, "fate_reason": undone.reason, "advantages": list[float]()}
    return [
        call.model_copy(update=update) if call.fate is TokenFate.TRAINED else call for call in calls
    ]


_SPLIT = frozenset({FateReason.NONE, FateReason.ZERO_ADVANTAGE, FateReason.ROLLED_BACK})
"""Fates of a call in which single tokens that the client left out are counted as that."""
_LEFT_OUT = masked(FateReason.CLIENT_MASK)


class TokenAccount:
    """Counts sampled tokens by agent and fate; ``counts`` is what ``StepMetrics.tokens`` holds."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, calls: Sequence[CallRecord], fates: Sequence[Fate]) -> None:
        """Book every sampled token of ``calls`` once, under the fate at the same position or its own mask."""
        for call, fate in zip(calls, fates, strict=True):
            count = len(call.sampled_ids)
            if call.token_mask and fate.fate is not TokenFate.DROPPED and fate.reason in _SPLIT:
                count = sum(call.token_mask)
                self._add(call.agent, _LEFT_OUT.key, len(call.token_mask) - count)
            self._add(call.agent, fate.key, count)

    def merge(self, by_agent: Mapping[str, Mapping[str, int]]) -> None:
        """Add counts as ``by_agent`` gave them."""
        for agent, counts in by_agent.items():
            for key, count in counts.items():
                self._add(agent, key, count)

    def undo_training(self) -> None:
        """Book what had trained as masked: the update was rolled back."""
        for agent, key in list(self._counts):
            if key == TRAINED.key:
                count = self._counts.pop((agent, key))
                self._add(agent, masked(FateReason.ROLLED_BACK).key, count)

    def _add(self, agent: str, key: str, count: int) -> None:
        if count:
            self._counts[agent, key] += count

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by ``Fate.key``, sorted by name; only what occurred."""
        total: Counter[str] = Counter()
        for (_, key), count in self._counts.items():
            total[key] += count
        return dict(sorted(total.items()))

    @property
    def by_agent(self) -> dict[str, dict[str, int]]:
        """The same for each agent (``""``: who called with the episode's own key), both sorted by name."""
        found: dict[str, dict[str, int]] = {}
        for (agent, key), count in sorted(self._counts.items()):
            found.setdefault(agent, {})[key] = count
        return found

    @property
    def total(self) -> int:
        """All tokens booked."""
        return self._counts.total()

    @property
    def trained(self) -> int:
        """Tokens that carry a loss: the normaliser of ``token_mean``."""
        return self.counts.get(TRAINED.key, 0)


def sampled_tokens(calls: Iterable[CallRecord]) -> int:
    """Tokens that the engine sampled in these calls: what the account must add up to."""
    return sum(len(call.sampled_ids) for call in calls)
