"""Budgets of the language model: many campaigns spend until they are refused, some killed with calls in flight, some overbilled.

The provider of this test keeps its own account of what reached it. It is compared with the limit, not with what the leader believes.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

from a3r.core.clock import SystemClock
from a3r.core.errors import BudgetSpent
from a3r.core.llm import ModelMessage, ModelReply, ModelRequest, Price, Spent
from a3r.core.types import ReviewMode
from a3r.leader.llm.budget import Limits, sum_of
from a3r.leader.llm.desk import Desk
from a3r.store.store import Store
from a3r.testing.trust.figure import Figure

CAMPAIGNS = 60
PRICE = Price(prompt_usd=1e-6, completion_usd=4e-6)
MOST_CALLS = 1000
Temper = Literal["honest", "killed", "overbilled"]
TEMPERS: tuple[Temper, ...] = ("honest", "killed", "overbilled")
UNITS = ("usd", "tokens", "calls")


class Killed(BaseException):
    """The leader dies here: nothing of it may be caught or tidied up."""


@dataclass
class Provider:
    """A model that bills everything that reaches it; ``killed`` loses some replies, ``overbilled`` takes more than was agreed."""

    rng: random.Random
    temper: Temper
    bills: list[Spent] = field(default_factory=list[Spent])

    @property
    def name(self) -> str:
        """Of the model."""
        return "trust/provider"

    def price(self) -> Price:
        """USD a token."""
        return PRICE

    def count_tokens(self, request: ModelRequest) -> int:
        """A third of the characters."""
        return len(request.model_dump_json()) // 3

    def complete(self, request: ModelRequest) -> ModelReply:
        """Bill, then answer; or bill and never answer."""
        prompt = self.count_tokens(request)
        completion = self.rng.randint(1, request.max_tokens)
        if self.temper == "overbilled" and self.rng.random() < 0.3:
            completion = request.max_tokens * 3
        lost = self.temper == "killed" and self.rng.random() < 0.3
        if lost:
            completion = request.max_tokens
        usd = prompt * PRICE.prompt_usd + completion * PRICE.completion_usd
        self.bills.append(Spent(usd=usd, tokens=prompt + completion, calls=1))
        if lost:
            raise Killed
        return ModelReply(text="on", prompt_tokens=prompt, completion_tokens=completion)

    def billed(self, unit: str) -> float:
        """Everything."""
        return float(getattr(sum_of(("", bill) for bill in self.bills), unit))


def budget_figure(scale: float = 1.0) -> Figure:
    """The largest overrun of any campaign, in calls of its own size."""
    campaigns, rng = max(9, int(CAMPAIGNS * scale)), random.Random("budget")  # noqa: S311
    worst = dict.fromkeys(TEMPERS, 0.0)
    calls = unheard = 0
    for number in range(campaigns):
        temper, unit = TEMPERS[number % 3], UNITS[number // 3 % 3]
        provider = Provider(random.Random(rng.random()), temper)  # noqa: S311
        limit = {"usd": 0.02, "tokens": 9000, "calls": 12}[unit] * rng.uniform(0.5, 2)
        limit = limit if unit == "usd" else int(limit)
        with tempfile.TemporaryDirectory(prefix="a3r-trust-") as folder:
            unheard += not _spend(provider, _limits(unit, limit), Path(folder))
        over = max(0.0, provider.billed(unit) - limit - 1e-9)
        largest = max(float(getattr(bill, unit)) for bill in provider.bills)
        worst[temper] = max(worst[temper], over / largest)
        calls += len(provider.bills)
    met = max(worst.values()) <= 1 and not worst["honest"] and not worst["killed"] and not unheard
    return Figure(
        "largest overrun of a language model budget",
        "at most 1 call",
        f"{max(worst.values()):.1f} calls",
        met,
        f"{campaigns} campaigns, {calls} calls; 0 where the provider bills what was agreed, also when the leader is killed with a call "
        f"in flight; the report's share was left in {campaigns - unheard} of {campaigns}.",
    )


def _limits(unit: str, limit: float) -> Limits:
    """Only that unit is limited."""
    return Limits(
        usd=limit if unit == "usd" else None,
        tokens=int(limit) if unit == "tokens" else None,
        calls=int(limit) if unit == "calls" else None,
    )


def _spend(provider: Provider, limits: Limits, folder: Path) -> bool:
    """Ask until refused, restarting after each kill, then for the report until refused; whether the report was heard at all.

    An overbilling provider may have eaten the report's share too: its campaigns count as heard.
    """
    with Store.open(folder / "a3r.db", SystemClock()) as store:
        campaign = store.create_campaign(
            "budget", "", str(folder), {}, ReviewMode.NONE, "llm", 1.0
        ).id

        def answers(purpose: str) -> int:
            asked = (
                _asked(store, provider, campaign, limits, f"{purpose}-{n}", purpose)
                for n in range(MOST_CALLS)
            )
            return sum(1 for _ in takewhile(bool, asked))

        answers("plan")
        return answers("interpret") > 0 or provider.temper == "overbilled"


def _asked(
    store: Store, provider: Provider, campaign: str, limits: Limits, decision: str, purpose: str
) -> bool:
    """Ask once, as often as the leader is killed; False when the budget refuses."""
    while True:
        desk = Desk(store, provider, campaign, limits, scope="job")
        words = ModelMessage(role="user", content="What next? " * provider.rng.randint(1, 60))
        try:
            desk.ask(decision, purpose, [words], str, max_tokens=200)
        except Killed:
            store.lose_calls()  # what the next daemon does first
        except BudgetSpent:
            return False
        else:
            return True
