"""``run_episodes``: follow the server's pool, run agents on the tasks that it needs, until training is complete.

One loop looks at the pool, plans (``planning``), asks for episodes in planned order and lets agents run beside it, at most
``parallel`` at once. Asking in order makes group and repeat numbers, and so the sampling noise, the same in every run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from swarm.client.agents import Agent, is_async
from swarm.client.async_client import AsyncSwarmClient
from swarm.client.code_hash import code_hash_of
from swarm.client.errors import ClientUsageError, WaitTimeout
from swarm.client.group_planning import GroupPlanner
from swarm.client.group_source import AsyncGroupSource, asked_of
from swarm.client.options import RunOptions
from swarm.client.planning import Planner
from swarm.client.play import AnyEpisode, give_up, play
from swarm.client.sources import (
    OrderedSource,
    PlannedSource,
    SharedSource,
    TaskSource,
    check_seed,
)
from swarm.client.streams import TaskStream
from swarm.client.tally import Ended, RunSummary, Tally
from swarm.client.tasks import Task, as_task_set
from swarm.client.twins import async_twin, sync_twin
from swarm.client.waiting import offline
from swarm.protocol.clients import TaskCursor
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import (
    ClientReplaced,
    EpisodeGone,
    JournalFailed,
    ServerUnreachable,
    StateError,
    SwarmError,
)
from swarm.protocol.messages import Status
from swarm.protocol.pool import PoolSnapshot
from swarm.protocol.states import CollectionPolicy, EngineState, EpisodeKind, GrantOutcome, Role
from swarm.triggers import Point, hit

if TYPE_CHECKING:
    from swarm.client.async_group import AsyncSwarmGroup
    from swarm.client.client import SwarmClient
    from swarm.client.group import SwarmGroup
    from swarm.client.group_source import Asked

    AnyClient = SwarmClient | AsyncSwarmClient | SwarmGroup | AsyncSwarmGroup

logger = logging.getLogger(__name__)

BY_AGREEMENT = (CollectionPolicy.C4, CollectionPolicy.C5)
REFRESH_S = 2.0
"""The pool is looked at again after this long, because other clients change it too."""
FIRST_LOOK_S = 0.01
OFFLINE_GRACE_S = 10.0
"""A server that was seen at work may be OFFLINE this long (a restart that resumes)."""
LOOK_AGAIN_S = 0.5
"""Between two looks at a server that is away."""


async def run_episodes_async(
    tasks: Any, agent: Agent, *, client: AsyncSwarmClient | AsyncSwarmGroup, **options: Any
) -> RunSummary:
    """Run ``agent`` on the tasks that the server's pool needs, until training is complete.

    Args:
        tasks: a TaskSet, a sequence or an iterable of tasks (read at once), or a ``TaskStream`` (read as needed, in order).
        agent: ``agent(episode, task) -> reward | (reward, metrics)``; a coroutine function gets an ``AsyncEpisode``, a
            plain function runs in a thread with an ``Episode``.
        client: a client with a client or admin token, or a group of them (the agent gets a group's episode).
        options: the fields of ``RunOptions``.

    Returns:
        What became of the episodes.

    Raises:
        TooManyFailures: nothing has succeeded for ``max_consecutive_failures`` episodes.
        StateError: the server is OFFLINE.
        WaitTimeout: nothing moved for ``stall_timeout_s``.
        ServerUnreachable: the server was away for longer than ``unreachable_timeout_s``.
        ClientReplaced: a later client registered under the same id.
        ClientUsageError: the arguments can never work, or do not fit the cursor that ``resume`` goes on from.
    """
    settings = RunOptions(**options)
    asked = asked_of(client)
    run = _Run(_source(tasks, asked, settings), agent, asked, settings)
    try:
        return await run.go()
    finally:
        await run.close()


def run_episodes(tasks: Any, agent: Agent, *, client: AnyClient, **options: Any) -> RunSummary:
    """``run_episodes_async`` for a script without an event loop; connects like ``client`` and leaves it open."""

    async def go() -> RunSummary:
        async with async_twin(client) as twin:
            return await run_episodes_async(tasks, agent, client=twin, **options)

    return asyncio.run(go())


def _source(tasks: Any, client: Asked, options: RunOptions) -> TaskSource:
    """Where the tasks come from; refuses what can never work before anything is asked."""
    if options.resume and not client.settings.named:
        raise ClientUsageError(
            "resume=True needs a client with an id of its own: the server keeps the place in the tasks by client id.",
            hint="Make the client with client_id='...', the same one each time.",
        )
    if isinstance(tasks, TaskStream):
        if options.shared:
            raise ClientUsageError(
                "A TaskStream cannot be shared: the server's queue needs all ids at once.",
                hint="Give a task set or a list, or leave out shared.",
            )
        return OrderedSource(tasks, options.task_set, options.data_seed)
    found = as_task_set(tasks)
    if options.shared:
        return SharedSource(found, options.task_set, options.data_seed, options.epochs)
    planner = GroupPlanner if isinstance(client, AsyncGroupSource) else Planner
    return PlannedSource(planner(found, options.task_set, options.data_seed))


class _Run:
    """The state of one ``run_episodes``."""

    def __init__(
        self, source: TaskSource, agent: Agent, client: Asked, options: RunOptions
    ) -> None:
        self._source, self._agent, self._client, self._options = source, agent, client, options
        given = options.code_hash if options.code_hash is not None else client.settings.code_hash
        self._code_hash = given if options.code_hash == "" else given or code_hash_of(agent)
        self._tally = Tally(options.max_consecutive_failures)
        self._jobs: set[asyncio.Task[None]] = set()
        self._not_begun: set[AnyEpisode] = set()
        """Granted, but their job has not run its first line."""
        self._look_again = asyncio.Event()
        """Set when an episode's end may have changed what the pool needs."""
        self._ended_in_group: Counter[str] = Counter()
        self._group_size = 1
        self._step = -1
        self._passing_s = FIRST_LOOK_S
        self._poll: asyncio.Task[Status] | None = None
        self._threads = None if is_async(agent) else sync_twin(client)
        self._client_id = ""

    async def go(self) -> RunSummary:
        """Look, plan, ask, wait; until the end."""
        await self._begin(await self._look())
        while True:
            pool = await self._look()
            plan = await self._source.plan(pool, self._options.repeat)
            ended = self._is_over(pool, plan)
            if ended is not None:
                # The server ends or refuses what is still open, so agents come to their end by themselves.
                if self._jobs:
                    await asyncio.wait(self._jobs, timeout=self._options.episode_timeout_s)
                return self._tally.close(ended)
            refused = await self._ask_for(plan, pool)
            self._tally.check()
            await self._agree(pool, plan)
            if refused or not plan:
                await self._wait(pool)

    async def _begin(self, pool: PoolSnapshot) -> None:
        """Go to where the tasks stand, and tell the server where that is; also across a restart of the server."""
        while True:
            try:
                cursor = await self._agreed_cursor()
                break
            except ServerUnreachable:
                pool = await self._look()  # gives up when it was away for too long
        await self._source.begin(cursor, pool)

    async def _agreed_cursor(self) -> TaskCursor | None:
        """Where to go on (None: at the beginning), as the server now has it too. Safe to repeat."""
        options = self._options
        lease = await self._client.register(Role.TRAINER, self._code_hash)
        if self._source.queue is not None:
            await self._client.set_task_queue(options.task_set, self._source.queue)
        cursor = next((c for c in lease.cursors if c.task_set == options.task_set), None)
        if options.resume:
            check_seed(cursor, options.data_seed, self._client_id)
            return cursor
        if cursor is not None and cursor.position:
            logger.info("beginning anew; resume=True would go on after %d tasks", cursor.position)
            beginning = cursor.model_copy(update={"position": 0, "data_seed": options.data_seed})
            await self._client.set_cursor(beginning, self._client_id)
        return None

    async def _agree(self, pool: PoolSnapshot, plan: list[Task]) -> None:
        """Under C4 and C5: say that the step may be taken, when that is so; a server that restarted is told by the next look."""
        if pool.policy not in BY_AGREEMENT or self._client_id in pool.agreed:
            return
        when = self._options.agree_when
        # By itself when all that was needed has ended.
        ready = when(pool) if when else pool.takeable and not plan and not self._jobs
        if ready and pool.state is EngineState.ROLLING:
            try:
                await self._client.agree(pool.step)
            except (StateError, ServerUnreachable) as error:
                logger.info("step %d: no agreement: %s", pool.step, error.message)

    def _is_over(self, pool: PoolSnapshot, plan: list[Task]) -> Ended | None:
        if pool.state is EngineState.TRAINED:
            return "training_complete"
        until = self._options.until_step
        if until is not None and pool.step >= until:
            return "until_step"
        # Outside ROLLING the plan is empty for another reason.
        idle = pool.state is EngineState.ROLLING and not plan and not self._jobs
        return "tasks_exhausted" if idle and self._source.exhausted else None

    async def _look(self) -> PoolSnapshot:
        """The pool, also across a restart of the server; a step seen for the first time is announced."""
        began = time.monotonic()
        while True:
            self._look_again.clear()
            try:
                self._client_id = await self._client.ensure_registered(
                    EpisodeKind.TRAIN, self._code_hash
                )
                pool = await self._client.pool()
                if pool.state is not EngineState.OFFLINE:
                    break
                status = await self._client.status()
                seen_at_work = self._step >= 0 and not status.failure
                if not seen_at_work or time.monotonic() - began > OFFLINE_GRACE_S:
                    raise offline(status)
            except ServerUnreachable:
                if time.monotonic() - began > self._options.unreachable_timeout_s:
                    raise
            await asyncio.sleep(LOOK_AGAIN_S)
        if pool.step != self._step:
            await self._enter_step(pool)
        return pool

    async def _enter_step(self, pool: PoolSnapshot) -> None:
        self._step, self._group_size = pool.step, self._options.repeat or pool.repeat
        self._ended_in_group.clear()
        self._passing_s = FIRST_LOOK_S
        self._tally.moved()
        if self._options.on_step is not None:
            result = self._options.on_step(pool.step)
            if inspect.isawaitable(result):
                await result

    async def _ask_for(self, plan: list[Task], pool: PoolSnapshot) -> bool:
        """Ask for the planned episodes in order; True when the server refused one, so that asking on is no use now."""
        for position, task in enumerate(plan):
            while len(self._jobs) >= self._options.parallel:
                await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)
            if self._options.agree_when is not None and self._look_again.is_set():
                return False  # it may want to agree now, before all that was planned is played
            self._tally.check()
            request = self._request(task, pool, first=position == 0)
            try:
                grant = await self._client.grant(request)
            except ClientReplaced:
                raise
            except (StateError, EpisodeGone, ServerUnreachable, JournalFailed) as error:
                logger.info("step %d: no grant for %r: %s", pool.step, task.task_id, error.message)
                return True
            if grant.outcome is not GrantOutcome.GRANTED:
                return True
            hit(Point.CLIENT_GRANTED)
            self._tally.granted(grant.step)
            maker = self._client if self._threads is None else self._threads
            episode = maker.episode_of(grant, request)
            self._not_begun.add(episode)  # given up at the end, if its task turns out to be unknown
            self._start(episode, self._source.granted(task, grant))
        return False

    def _request(self, task: Task, pool: PoolSnapshot, *, first: bool) -> GrantRequest:
        return GrantRequest(
            client_id=self._client_id,
            task_set=self._options.task_set,
            task_id=task.task_id,
            step=pool.step,
            # With nothing running there is nothing to miss: let the server hold the first request (an eval gate).
            wait_s=REFRESH_S if first and not self._jobs else 0.0,
            throttle=self._options.throttle,
            code_hash=self._code_hash,
            cursor=self._source.cursor(task, pool.step),
        )

    def _start(self, episode: AnyEpisode, task: Task) -> None:
        job = asyncio.create_task(self._play(episode, task))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _play(self, episode: AnyEpisode, task: Task) -> None:
        self._not_begun.discard(episode)
        played = await play(self._agent, episode, task, self._options.episode_timeout_s)
        self._tally.add(played, task)
        if played.how == "failed" and played.error and self._options.on_error is not None:
            self._options.on_error(task, played.error)
        # What the pool needs can change when a member is missing, or when a group is complete (C3: was it trainable?).
        group = episode.grant.group_id
        self._ended_in_group[group] += 1
        if played.how != "finished" or self._ended_in_group[group] >= self._group_size:
            self._look_again.set()

    async def _wait(self, pool: PoolSnapshot) -> None:
        """Until the step ends, an episode's end may have changed what is needed, or ``REFRESH_S`` passed."""
        if self._tally.idle_s > self._options.stall_timeout_s:
            raise await self._stalled()
        if self._poll is None:
            wait_s = self._refresh_s(pool)
            self._poll = asyncio.create_task(self._client.poll_step(pool.step, wait_s, opened=True))
        look = asyncio.create_task(self._look_again.wait())
        try:
            await asyncio.wait({self._poll, look}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            look.cancel()
        if self._poll.done():
            error = self._poll.exception()
            self._poll = None
            # An unreachable server is noticed, and waited for, where the pool is read.
            if error is not None and not isinstance(error, ServerUnreachable):
                raise error

    def _refresh_s(self, pool: PoolSnapshot) -> float:
        """Seconds until the next look. A state that passes by itself (the last step becomes TRAINED) is looked at sooner."""
        if pool.state is EngineState.ROLLING:
            return REFRESH_S
        self._passing_s = min(REFRESH_S, self._passing_s * 2)
        return self._passing_s

    async def _stalled(self) -> WaitTimeout:
        status = await self._client.status()
        return WaitTimeout(
            f"No episode ended and no step completed for {self._tally.idle_s:.0f} s: the server is "
            f"{status.state.value} at step {status.step}, waiting for {status.waiting_for or 'nothing that it names'}.",
            hint="Look at `swarm status` and at the server's log.",
        )

    async def close(self) -> None:
        """Cancel what still runs (its episodes are aborted) and close the threads' client."""
        pending: list[asyncio.Task[Any]] = list(self._jobs)
        if self._poll is not None:
            pending.append(self._poll)
        for task in pending:
            task.cancel()
        results = await asyncio.gather(*pending, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, SwarmError):
                logger.warning("while stopping: %r", result)
        await asyncio.gather(*(give_up(episode) for episode in self._not_begun))
        if self._threads is not None:
            self._threads.close()
