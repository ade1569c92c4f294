"""A cluster engine in memory: jobs stand in a list and change when the test says so. For tests only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from a3r.core.errors import PoolError, PoolUnavailable
from a3r.core.pools import EngineJob, JobAsk, PoolJobState


@dataclass
class FakeEngine:
    """Implements ``a3r.core.pools.PoolEngine``."""

    jobs: dict[str, EngineJob] = field(default_factory=dict[str, EngineJob])
    """Our id -> state. The engine's own id is ``x-<ours>``."""
    asks: list[JobAsk] = field(default_factory=list[JobAsk])
    stopped: list[str] = field(default_factory=list[str])
    trouble: PoolError | None = None
    """Raised by every call, until it is None again."""
    lose_answer: bool = False
    """The next submission gets there and its answer does not."""

    def submit(self, ask: JobAsk) -> str:
        """File it as queued."""
        self._check()
        if ask.id not in self.jobs:
            self.asks.append(ask)
            self.jobs[ask.id] = EngineJob(PoolJobState.QUEUED)
        if self.lose_answer:
            self.lose_answer = False
            raise PoolUnavailable("the answer was lost")
        return f"x-{ask.id}"

    def look(self, jobs: Mapping[str, str]) -> dict[str, EngineJob]:
        """As the test left them."""
        self._check()
        return {job: self.jobs[job] for job in jobs if job in self.jobs}

    def stop(self, jobs: Sequence[str]) -> None:
        """End them, as a cluster does it."""
        self._check()
        for job in jobs:
            self.stopped.append(job)
            ours = job.removeprefix("x-")
            if ours in self.jobs:
                self.jobs[ours] = EngineJob(PoolJobState.FAILED, "cancelled")

    def say(self, job: str, state: PoolJobState, detail: str = "") -> None:
        """Let the engine say this of one of our jobs from now on."""
        self.jobs[job] = EngineJob(state, detail)

    def _check(self) -> None:
        if self.trouble is not None:
            raise self.trouble
