"""``run_eval``: play eval episodes over a fixed list of items and score each one from the server's own trace.

The score comes from what the server captured, not from what the agent returned. An item without a complete episode is
missing: it is counted, and never scored 0.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from swarm.client.agents import Agent, is_async
from swarm.client.calls import LONG_POLL_S
from swarm.client.errors import ClientUsageError
from swarm.client.group_source import asked_of
from swarm.client.play import AnyEpisode, play
from swarm.client.tasks import Task, as_task_set
from swarm.client.twins import async_twin, sync_twin
from swarm.client.waiting import grant_timeout, granted
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import SwarmError
from swarm.protocol.records import EpisodeTrace
from swarm.protocol.states import EpisodeKind

if TYPE_CHECKING:
    from swarm.client.async_client import AsyncSwarmClient
    from swarm.client.async_group import AsyncSwarmGroup
    from swarm.client.group_source import Asked
    from swarm.client.rollouts import AnyClient

Scorer = Callable[[Task, EpisodeTrace], float]


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One eval episode that was planned."""

    task_id: str
    repeat: int
    """0..repeat-1 of this item."""
    episode_id: str = ""
    """Empty when none was granted."""
    score: float | None = None
    """By the scorer, from the trace (without a scorer: what the agent returned); None = missing."""
    policy_versions: tuple[int, ...] = ()
    """Versions that answered its calls, from the trace, ascending; more than one = a sync fell into the episode."""
    calls: int = 0
    why_missing: str = ""


@dataclass(frozen=True, slots=True)
class EvalReport:
    """Answer of ``run_eval``: the records in order of items, then repeats."""

    records: list[EvalRecord] = field(default_factory=list[EvalRecord])

    @property
    def planned(self) -> int:
        """Episodes planned: items times repeats."""
        return len(self.records)

    @property
    def scores(self) -> list[float]:
        """Scores of the complete ones, in order."""
        return [r.score for r in self.records if r.score is not None]

    @property
    def completed(self) -> int:
        """Episodes with a score."""
        return len(self.scores)

    @property
    def missing(self) -> int:
        """Planned, but without a score."""
        return self.planned - self.completed

    @property
    def mean(self) -> float | None:
        """Mean score of the complete ones; None when there is none. Read it beside ``missing``."""
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def policy_versions(self) -> list[int]:
        """All versions that answered, ascending."""
        return sorted({v for r in self.records for v in r.policy_versions})


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """The keyword arguments of ``run_eval``."""

    scorer: Scorer | None = None
    """``scorer(task, trace) -> score``; None takes what the agent returned."""
    task_set: str = "eval"
    """Name of the items on the server."""
    repeat: int = 1
    """Episodes an item."""
    parallel: int = 32
    """Episodes at once at most."""
    step: int | None = None
    """Only in this server step; None = whichever is current (look at ``policy_versions`` afterwards)."""
    episode_timeout_s: float = 1800.0
    """An agent that takes longer is given up; its item is missing."""
    grant_timeout_s: float = 600.0
    """An item that is not granted within this is missing."""

    def __post_init__(self) -> None:
        """Refuse what can never work."""
        if self.parallel < 1 or self.repeat < 1:
            raise ClientUsageError(
                f"parallel={self.parallel!r} and repeat={self.repeat!r} must be at least 1.",
                hint="Leave them out to take the defaults.",
            )


async def run_eval_async(
    tasks: Any, agent: Agent, *, client: AsyncSwarmClient | AsyncSwarmGroup, **options: Any
) -> EvalReport:
    """Play every item of ``tasks`` as an eval episode; return a record for each one, complete or missing.

    Args:
        tasks: the items; all are played.
        agent: as for ``run_episodes``.
        client: a client with an eval, client or admin token, or a group of them (a scorer then gets the first server's trace).
        options: the fields of ``EvalOptions``.

    Raises:
        SwarmError: registering failed (no server, no power). After that a failure costs one item and stands in its record.
    """
    settings = EvalOptions(**options)
    items = as_task_set(tasks)
    asked = asked_of(client)
    evaluation = _Evaluation(
        agent, asked, settings, await asked.ensure_registered(EpisodeKind.EVAL)
    )
    plan = [(items[i], number) for i in range(len(items)) for number in range(settings.repeat)]
    jobs = [asyncio.create_task(evaluation.record(task, number)) for task, number in plan]
    try:
        return EvalReport(list(await asyncio.gather(*jobs)))
    finally:
        for job in jobs:
            job.cancel()  # only where a scorer raised or the caller was cancelled is anything left to stop
        await asyncio.gather(*jobs, return_exceptions=True)
        evaluation.close()


def run_eval(tasks: Any, agent: Agent, *, client: AnyClient, **options: Any) -> EvalReport:
    """``run_eval_async`` for a script without an event loop; connects like ``client`` and leaves it open."""

    async def go() -> EvalReport:
        async with async_twin(client) as twin:
            return await run_eval_async(tasks, agent, client=twin, **options)

    return asyncio.run(go())


class _Evaluation:
    """What the episodes of one ``run_eval`` share."""

    def __init__(self, agent: Agent, client: Asked, options: EvalOptions, client_id: str) -> None:
        self._agent, self._client, self._options, self._id = agent, client, options, client_id
        self._threads = None if is_async(agent) else sync_twin(client)
        self._seats = asyncio.Semaphore(options.parallel)

    async def record(self, task: Task, number: int) -> EvalRecord:
        """Play one item once. A failure of any kind makes it missing, with the reason."""
        async with self._seats:
            try:
                episode = await self._take(task)
                played = await play(self._agent, episode, task, self._options.episode_timeout_s)
                if played.how not in ("finished", "rejected"):
                    why = f"{played.how}: {played.error!r}" if played.error else played.how
                    return EvalRecord(task.task_id, number, episode.id, why_missing=why)
                return await self._score(task, number, episode, played.reward)
            except SwarmError as error:
                return EvalRecord(task.task_id, number, why_missing=error.message)

    async def _take(self, task: Task) -> AnyEpisode:
        options = self._options
        request = GrantRequest(
            client_id=self._id,
            kind=EpisodeKind.EVAL,
            task_set=options.task_set,
            task_id=task.task_id,
            step=options.step,
            wait_s=min(LONG_POLL_S, options.grant_timeout_s),
        )
        ends = time.monotonic() + options.grant_timeout_s
        while True:
            grant = await self._client.grant(request)
            if granted(grant, request):
                maker = self._client if self._threads is None else self._threads
                return maker.episode_of(grant, request)
            passed = options.step is not None and grant.step > options.step
            if passed or time.monotonic() >= ends:
                raise grant_timeout(grant, request, options.grant_timeout_s)
            await asyncio.sleep(0.05)

    async def _score(
        self, task: Task, number: int, episode: AnyEpisode, returned: float | None
    ) -> EvalRecord:
        trace = await self._client.trace(episode.id)
        scorer = self._options.scorer
        score = returned if scorer is None else float(scorer(task, trace))
        return EvalRecord(
            task.task_id,
            number,
            episode.id,
            score,
            tuple(sorted({call.policy_version for call in trace.calls})),
            len(trace.calls),
            "" if score is not None else "the agent returned no score and there is no scorer",
        )

    def close(self) -> None:
        """Close the threads' client."""
        if self._threads is not None:
            self._threads.close()
