"""The account of sampled tokens: each ends up trained, masked or dropped, with one reason.

All tokens of one call share their fate, so fates are kept per call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swarm.protocol.messages import CallRecord
from swarm.protocol.states import FateReason, FinishReason, TokenFate


class Fate(NamedTuple):
    """What became of the sampled tokens of one call, and why."""

    fate: TokenFate
    reason: FateReason

    @property
    def key(self) -> str:
        """Name in ``StepMetrics.tokens``: ``"trained"`` or ``"<fate>:<reason>"``."""
        return self.fate.value if not self.reason else f"{self.fate.value}:{self.reason.value}"


TRAINED = Fate(TokenFate.TRAINED, FateReason.NONE)


def masked(reason: FateReason) -> Fate:
    """Part of a row (or of a batch) but without a loss."""
    return Fate(TokenFate.MASKED, reason)


def dropped(reason: FateReason) -> Fate:
    """Never came near a batch."""
    return Fate(TokenFate.DROPPED, reason)


def call_fate(call: CallRecord) -> Fate:
    """Return the fate that a call has by itself, before its group and its episode are judged.

    An aborted call is dropped (its answer may have been cut anywhere); a greedy one is masked (temperature 0 has no
    usable log-probability); everything else can train. A call with no sampled token counts zero tokens either way.
    """
    if call.finish_reason == FinishReason.ABORT:
        return dropped(FateReason.ABORTED_CALL)
    if call.temperature == 0.0:
        return masked(FateReason.GREEDY)
    return TRAINED


def whole_episode(calls: Sequence[CallRecord], fate: Fate) -> list[Fate]:
    """Fates of an episode that does not train: every call is dropped (or masked) for that reason.

    Masking (zero advantage) leaves what a call already is by itself (greedy, aborted); dropping overrides it.
    """
    if fate.fate is not TokenFate.MASKED:
        return [fate] * len(calls)
    own = [call_fate(call) for call in calls]
    return [fate if mine == TRAINED else mine for mine in own]


def with_fates(calls: Sequence[CallRecord], fates: Sequence[Fate]) -> list[CallRecord]:
    """Return copies of the calls with ``fate`` and ``fate_reason`` filled in, in the same order."""
    return [
        call.model_copy(update={"fate": fate.fate, "fate_reason": fate.reason})
        for call, fate in zip(calls, fates, strict=True)
    ]


class TokenAccount:
    """Counts sampled tokens by fate; ``counts`` is what ``StepMetrics.tokens`` holds."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, calls: Sequence[CallRecord], fates: Sequence[Fate]) -> None:
        """Book every sampled token of ``calls`` once, under the fate at the same position."""
        for call, fate in zip(calls, fates, strict=True):
            if call.sampled_ids:
                self._counts[fate.key] += len(call.sampled_ids)

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by ``Fate.key``, sorted by name; only what occurred."""
        return dict(sorted(self._counts.items()))

    @property
    def total(self) -> int:
        """All tokens booked."""
        return self._counts.total()

    @property
    def trained(self) -> int:
        """Tokens that carry a loss: the normaliser of ``token_mean``."""
        return self._counts[TRAINED.key]


def sampled_tokens(calls: Iterable[CallRecord]) -> int:
    """Tokens that the engine sampled in these calls: what the account must add up to."""
    return sum(len(call.sampled_ids) for call in calls)
