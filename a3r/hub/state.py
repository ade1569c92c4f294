"""What every route of one hub shares, and the callbacks by which the hub reaches what it does not know."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from a3r.core.errors import StoreError
from a3r.core.pools import PoolKind, PoolOptions
from a3r.core.ports import Clock
from a3r.core.types import ReviewMode
from a3r.hub.changes import Changes
from a3r.hub.settings import HubSettings
from a3r.hub.tokens import HubTokens
from a3r.store.store import Store

T = TypeVar("T")
logger = logging.getLogger(__name__)

MOST_TROUBLE = 500
BRIDGE_WAIT_S = 1.0
BURST_S = 0.1
READERS, WRITERS = 4, 2
"""Threads for the workers' requests. More would not be faster: Python runs one at a time, each step of a query hands the turn on,
and so a transaction takes as many turns of everybody else as it has steps. The database has one writer anyway; the second thread
is for the time in which the first waits for the disk."""


@dataclass(frozen=True)
class ReadGoal:
    """What the hub must know of a goal to file it; reading one is the leader's."""

    name: str
    spec: dict[str, Any]
    review: ReviewMode
    planner: str


def _nothing() -> None:
    """Do nothing."""


def _no_report() -> dict[str, Any]:
    return {}


def _as_given(_kind: PoolKind, options: PoolOptions) -> PoolOptions:
    return options


@dataclass(frozen=True)
class Hooks:
    """Callbacks that the wiring fills in. They may be called from any thread and must be quick."""

    read_goal: Callable[[str, str], ReadGoal]
    """Reads the text of a goal.md that lies in a folder; raises ``GoalError``."""
    on_change: Callable[[], None] = _nothing
    """A worker or a person changed something: the leader may want to look."""
    on_shutdown: Callable[[], None] = _nothing
    """Somebody with the admin token asked the process to end."""
    check_pool: Callable[[PoolKind, PoolOptions], PoolOptions] = _as_given
    """The options of a pool as they are kept; raises ``PoolRefused``."""
    leader_report: Callable[[], dict[str, Any]] = _no_report
    """How the leader's tick is doing, as JSON."""


@dataclass
class Hub:
    """One per app. ``store`` is synchronous: routes call it through threads."""

    store: Store
    tokens: HubTokens
    settings: HubSettings
    hooks: Hooks
    clock: Clock
    changes: Changes = field(default_factory=Changes)
    """Any write of the store."""
    work: Changes = field(default_factory=Changes)
    """A write after which some attempt may be claimed."""
    orders: Changes = field(default_factory=Changes)
    """A write after which some worker is to be told something."""
    heard: dict[str, float] = field(default_factory=dict[str, float])
    """Worker id -> Unix seconds of its last word to this process; in memory, because nothing is decided by it."""
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)
    _readers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(READERS, "hub-reads"), repr=False
    )
    _writers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(WRITERS, "hub-writes"), repr=False
    )

    troubles: dict[str, str] = field(default_factory=dict[str, str])
    """Worker id -> why it takes nothing new, as it last said; likewise in memory."""

    def follow_store(self) -> None:
        """Pass the store's commits on to the long polls, from a thread that ends with ``close``."""
        threading.Thread(target=self._follow, name="hub-changes", daemon=True).start()

    def _follow(self) -> None:
        seen = self.store.changed.count
        while not self.changes.closed:
            count = self.store.changed.wait(seen, BRIDGE_WAIT_S)
            if count != seen:
                seen = count
                self._pass_on()
                # Writes come in bursts; a look a burst is enough.
                self._ended.wait(BURST_S)

    def _pass_on(self) -> None:
        """Wake those whom the writes may concern. Hundreds of workers wait: waking all for each write would be quadratic."""
        self.changes.notify()
        try:
            claimable, orders = self.store.has_claimable(), self.store.has_orders()
        except StoreError as error:
            logger.warning("who waits for work is told to look: %s", error)
            claimable = orders = True
        if claimable:
            self.work.notify()
        if orders:
            self.orders.notify()

    def close(self) -> None:
        """Let every long poll go. Safe to call twice."""
        self._ended.set()
        for changes in (self.changes, self.work, self.orders):
            changes.close()
        self.store.changed.notify()

    def hear(self, worker_id: str, trouble: str | None = None) -> None:
        """Note that a worker spoke, and what it said of its own state; None = nothing."""
        self.heard[worker_id] = self.clock.time()
        if trouble is not None:
            self.troubles[worker_id] = trouble[:MOST_TROUBLE]

    def changed(self) -> None:
        """Tell the leader that there may be something to do; waiters are woken by the store's own count."""
        self.hooks.on_change()

    async def reading(self, look: Callable[[], T]) -> T:
        """``look()`` in a thread for reads: it waits for no writer. Threads of writes are apart, so a slow disk stops no answer."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, look)

    async def writing(self, write: Callable[[], T]) -> T:
        """``write()`` in a thread for writes, first come, first served."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, write)

    async def poll(
        self,
        look: Callable[[], T | None],
        wait_s: float,
        gone: Callable[[], Awaitable[bool]],
        changes: Changes | None = None,
        seen: int | None = None,
        *,
        writes: bool = False,
    ) -> T | None:
        """Return ``look()`` as soon as it is not None, or None after ``wait_s`` (at most ``max_wait_s``).

        ``gone`` is asked before each look, so that nothing is handed to a caller who has left. ``changes``: which ones are worth
        a look; None = all. ``seen``: their count before a look that the caller has taken already: the next one is due after that. ``writes``: a look may lead to a write.
        """
        changes = changes or self.changes
        clock = asyncio.get_running_loop()
        deadline = clock.time() + min(max(wait_s, 0.0), self.settings.max_wait_s)
        if seen is not None:
            await changes.wait(seen, deadline - clock.time())
        while True:
            seen = changes.count
            if await gone():
                return None
            found = await (self.writing(look) if writes else self.reading(look))
            left = deadline - clock.time()
            if found is not None or left <= 0 or changes.closed:
                return found
            await changes.wait(seen, left)
