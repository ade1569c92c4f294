"""Who of those that wait goes into the engine next: episodes take turns, whatever number of calls each has.

Without this a single episode with hundreds of parallel calls would hold up every other one behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairGate:
    """Lets at most ``capacity`` calls in; those that wait go in round robin over their episodes, first come first within one."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._inside = 0
        self._turns: dict[str, deque[asyncio.Future[None]]] = {}
        """Episodes with waiting calls, the next one first."""
        self.waiting = 0
        """Calls that wait now."""

    @asynccontextmanager
    async def place(self, episode_id: str) -> AsyncIterator[None]:
        """Hold a place inside; waits for one. A caller that is cancelled while it waits loses its turn and nothing else."""
        if not self.enter():
            await self.wait(episode_id)
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> bool:
        """Take a place when one is free and nobody waits for it; give it back by ``leave``. False: ``wait`` for one."""
        if self._inside >= self.capacity or self._turns:
            return False
        self._inside += 1
        return True

    def leave(self) -> None:
        """Give a place back."""
        self._inside -= 1
        if self._turns:
            self._let_in()

    def resize(self, capacity: int) -> None:
        """Change the number of places; whoever is inside stays."""
        self.capacity = capacity
        self._let_in()

    async def wait(self, episode_id: str) -> None:
        """Wait for a place; it is held when this returns. A caller that is cancelled has none."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.setdefault(episode_id, deque()).append(future)
        self.waiting += 1
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                # Let in and cancelled in the same turn of the loop: the place goes on to the next.
                self._inside -= 1
                self._let_in()
            else:
                self._forget(episode_id, future)
            raise

    def _let_in(self) -> None:
        while self._inside < self.capacity and self._turns:
            episode_id, queue = next(iter(self._turns.items()))
            del self._turns[episode_id]
            future = queue.popleft()
            self.waiting -= 1
            if queue:
                self._turns[episode_id] = queue  # to the back
            if not future.done():
                self._inside += 1
                future.set_result(None)

    def _forget(self, episode_id: str, future: asyncio.Future[None]) -> None:
        queue = self._turns.get(episode_id)
        if queue is not None and future in queue:
            queue.remove(future)
            self.waiting -= 1
            if not queue:
                del self._turns[episode_id]
