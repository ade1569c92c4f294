"""What a campaign may pay for: every call is admitted before it is sent, on its full reserve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from a3r.core.errors import BudgetSpent, ModelRefused
from a3r.core.llm import LanguageModel, ModelRequest, Spent

SYNTHESIS = frozenset({"interpret"})
"""Purposes that may use what is kept for the report; nothing else may."""
SYNTHESIS_SHARE = 0.15
"""Of a goal that names no ``synthesis_share``."""
DEFAULT_USD = 5.0
"""As long as the goal is prose that nobody has understood yet."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Limits:
    """The campaign's budget; None: no limit."""

    usd: float | None = DEFAULT_USD
    tokens: int | None = None
    calls: int | None = None
    share: float = SYNTHESIS_SHARE
    """Part of each limit that only the synthesis may spend."""
    time_is_up: Callable[[], bool] = _never
    """Whether the wall clock's budget is used; the synthesis may still speak."""

    @classmethod
    def of(cls, budget: Mapping[str, Any], time_is_up: Callable[[], bool] = _never) -> Limits:
        """From a goal's ``budget`` section (``a3r.leader.goal_sections.Budget``)."""
        return cls(
            usd=budget.get("llm_usd", DEFAULT_USD),
            tokens=budget.get("llm_tokens"),
            calls=budget.get("llm_calls"),
            share=budget.get("synthesis_share", SYNTHESIS_SHARE),
            time_is_up=time_is_up,
        )

    def admit(self, purpose: str, reserve: Spent, spent: Mapping[str, Spent]) -> None:
        """Return if a call with this reserve may be sent after ``spent`` (by purpose).

        A synthesis call may use everything that is left; any other leaves the report's share alone.

        Raises:
            BudgetSpent: it may not; ``details["limit"]`` is ``usd``, ``tokens``, ``calls`` or ``wall_clock``.
        """
        synthesis = purpose in SYNTHESIS
        if not synthesis and self.time_is_up():
            raise BudgetSpent(
                "the campaign's minutes are used, so nothing but its report is asked of the language model",
                hint="A larger budget.wall_clock_min in the goal of a new campaign gives it more time.",
                limit="wall_clock",
            )
        total = sum_of(spent.items())
        ordinary = sum_of(pair for pair in spent.items() if pair[0] not in SYNTHESIS)
        for unit in ("usd", "tokens", "calls"):
            limit: float | None = getattr(self, unit)
            if limit is None:
                continue
            asked, left = getattr(reserve, unit), limit - getattr(total, unit)
            if not synthesis:
                left = min(left, limit - self.kept(unit) - getattr(ordinary, unit))
            # Money is a sum of many floats: a hair's breadth is no overrun.
            if asked > left + 1e-9:
                raise _spent(unit, asked, max(0.0, left), limit, self.kept(unit))

    def kept(self, unit: str) -> float:
        """What of the limit is kept for the synthesis; 0 without a limit."""
        limit: float | None = getattr(self, unit)
        if limit is None:
            return 0.0
        return limit * self.share if unit == "usd" else math.ceil(limit * self.share)


def reserve_for(model: LanguageModel, request: ModelRequest) -> Spent:
    """What the call may cost at most.

    Raises:
        ModelRefused: nobody knows the model's price, so nobody could keep a budget. Not a spent one: a person can put it right.
    """
    price = model.price()
    if price is None:
        raise ModelRefused(
            f"the price of the language model {model.name!r} is not known, so no budget could be kept",
            hint="Set A3R_LLM_PRICE to USD a million prompt and completion tokens, e.g. '3,15' ('0,0' for a model of your own), "
            "then 'a3r daemon stop' and resume the campaign.",
        )
    prompt = model.count_tokens(request)
    usd = prompt * price.prompt_usd + request.max_tokens * price.completion_usd
    return Spent(usd=usd, tokens=prompt + request.max_tokens, calls=1)


def sum_of(spent: Any) -> Spent:
    """The sum over ``(purpose, Spent)`` pairs."""
    total = Spent()
    for _, one in spent:
        total = total.plus(one)
    return total


def _spent(unit: str, asked: float, left: float, limit: float, kept: float) -> BudgetSpent:
    name = {"usd": "USD", "tokens": "tokens", "calls": "calls"}[unit]
    return BudgetSpent(
        f"the language model's budget does not allow this call: it may take {_number(asked)} {name}, {_number(left)} of "
        f"{_number(limit)} are left ({_number(kept)} are kept for the report)",
        hint=f"Start a new campaign with a larger budget.llm_{unit} in its goal.",
        limit=unit,
    )


def _number(value: float) -> str:
    return f"{int(value)}" if float(value).is_integer() else f"{value:.4g}"
