"""A store with one campaign, a clock by hand, and a desk whose model follows a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from a3r.core.llm import ModelMessage, Spent
from a3r.core.types import ReviewMode
from a3r.leader.llm.budget import Limits, sum_of
from a3r.leader.llm.desk import Desk
from a3r.store.store import Store
from a3r.testing.scripted_model import ScriptedModel


class Choice(BaseModel):
    """What the tests ask for."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["stop", "go-on"]
    runs: int
    why: str = ""


@dataclass
class HandClock:
    now: float = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Office:
    """One campaign and whatever asks on its behalf."""

    store: Store
    clock: HandClock
    campaign_id: str

    def desk(self, script: Any, limits: Limits | None = None, **model: Any) -> Desk:
        """A fresh desk, as after a restart; ``script`` may be a model."""
        scripted = script if isinstance(script, ScriptedModel) else ScriptedModel(script, **model)
        return Desk(self.store, scripted, self.campaign_id, limits, scope="job")

    def ask(self, desk: Desk, words: str = "What next?", **more: Any) -> Choice:
        """Ask for a ``Choice``: ``kind`` is ``stop`` or ``go-on``, ``runs`` a number."""
        message = ModelMessage(role="user", content=words)
        return desk.ask("next", "plan", [message], Choice, **more)

    def spent(self) -> Spent:
        return sum_of(self.store.llm_spent(self.campaign_id).items())

    def states(self) -> list[str]:
        return [call.state.value for call in self.store.llm_calls(self.campaign_id)]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    with Store.open(tmp_path / "a3r.db", clock) as opened:
        yield opened


@pytest.fixture
def start(store: Store, clock: HandClock) -> Callable[..., str]:
    def started(name: str = "study", **budget: Any) -> str:
        spec = {"budget": budget} if budget else {}
        row = store.create_campaign(
            name, "# goal", "/goals", spec, ReviewMode.STAGE, "llm", clock.now
        )
        return row.id

    return started


@pytest.fixture
def office(store: Store, clock: HandClock, start: Callable[..., str]) -> Office:
    return Office(store, clock, start())
