"""Keep registrations alive: one background thread (sync client) or task (async client) for all of them.

An evaluator registers under an id of its own, so that a restart of training never aborts its episodes, nor the reverse.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from swarm.protocol.clients import ClientLease, ClientRegistration
from swarm.protocol.errors import ClientReplaced, NotFoundError, SwarmError
from swarm.protocol.states import EpisodeKind, Role

logger = logging.getLogger(__name__)

LEAST_BEAT_S = 0.2


def registered_id(client_id: str, role: Role) -> str:
    """The id under which a role is registered: the client's own for a trainer, with ``-eval`` for an evaluator."""
    return client_id if role is Role.TRAINER else f"{client_id}-eval"


def role_for(kind: EpisodeKind) -> Role:
    """The role that takes episodes of ``kind``."""
    return Role.TRAINER if kind is EpisodeKind.TRAIN else Role.EVALUATOR


def beat_s(lease_s: float) -> float:
    """Seconds between heartbeats: a third of the lease, so that two may be lost."""
    return max(LEAST_BEAT_S, lease_s / 3)


def _covers(held: ClientRegistration | None, wanted: ClientRegistration, *, any_code: bool) -> bool:
    """Whether what is registered already will do."""
    return held is not None and (any_code or held.code_hash == wanted.code_hash)


class AsyncLeases:
    """Registrations of an async client, with a heartbeat task each."""

    def __init__(
        self,
        register: Callable[[ClientRegistration], Awaitable[ClientLease]],
        heartbeat: Callable[[str], Awaitable[ClientLease]],
    ) -> None:
        """Use the given calls; nothing runs before ``hold``."""
        self._register, self._heartbeat = register, heartbeat
        self._held: dict[str, ClientRegistration] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._first: dict[str, asyncio.Task[ClientLease]] = {}

    async def ensure(self, registration: ClientRegistration, *, any_code: bool = True) -> None:
        """Register unless this id is held (unless ``any_code``: with this code hash); concurrent callers share one registration."""
        client_id = registration.client_id
        while not _covers(self._held.get(client_id), registration, any_code=any_code):
            first = self._first.get(client_id)
            if first is None or first.done():
                first = asyncio.ensure_future(self.hold(registration))
                self._first[client_id] = first
            # Shielded: one caller that gives up must not take the registration from the others.
            await asyncio.shield(first)

    async def hold(self, registration: ClientRegistration) -> ClientLease:
        """Register now and keep the lease until ``close``."""
        lease = await self._register(registration)
        old = self._tasks.pop(registration.client_id, None)
        if old is not None:
            old.cancel()
        beat = self._beat(registration, lease.lease_s)
        self._held[registration.client_id] = registration
        self._tasks[registration.client_id] = asyncio.create_task(beat)
        return lease

    async def again(self, client_id: str) -> None:
        """Register what is held under this id again: the server does not know it any more."""
        await self._register(self._held[client_id])

    async def _beat(self, registration: ClientRegistration, lease_s: float) -> None:
        while True:
            await asyncio.sleep(beat_s(lease_s))
            try:
                lease_s = (await self._heartbeat(registration.client_id)).lease_s
            except NotFoundError:
                # The server restarted or the lease ended: its episodes are gone either way.
                with contextlib.suppress(SwarmError):
                    lease_s = (await self._register(registration)).lease_s
            except ClientReplaced as error:
                logger.warning("%s", error.message)
                return  # its next request for an episode is refused
            except SwarmError as error:
                logger.warning("heartbeat of %r failed: %s", registration.client_id, error.message)

    async def close(self) -> None:
        """Stop the heartbeats; the leases end by themselves."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks.values(), *self._first.values()]
        self._tasks.clear()
        self._first.clear()
        self._held.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SyncLeases:
    """Registrations of a synchronous client, with one daemon thread that beats for all of them."""

    def __init__(
        self,
        register: Callable[[ClientRegistration], ClientLease],
        heartbeat: Callable[[str], ClientLease],
    ) -> None:
        """Use the given calls; the thread starts with the first registration."""
        self._register, self._heartbeat = register, heartbeat
        self._lock = threading.Lock()
        self._held: dict[str, tuple[ClientRegistration, float]] = {}
        self._replaced: set[str] = set()
        """Held ids that a later client took; they get no more heartbeats."""
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def ensure(self, registration: ClientRegistration, *, any_code: bool = True) -> None:
        """Register unless this id is held (unless ``any_code``: with this code hash)."""
        with self._lock:
            held, _ = self._held.get(registration.client_id, (None, 0.0))
            if not _covers(held, registration, any_code=any_code):
                self._hold_locked(registration)

    def hold(self, registration: ClientRegistration) -> ClientLease:
        """Register now and keep the lease until ``close``."""
        with self._lock:
            return self._hold_locked(registration)

    def _hold_locked(self, registration: ClientRegistration) -> ClientLease:
        lease = self._register(registration)
        self._replaced.discard(registration.client_id)
        self._held[registration.client_id] = (registration, lease.lease_s)
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="swarm-heartbeat", daemon=True)
            self._thread.start()
        return lease

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s()):
            for registration, _ in list(self._held.values()):
                if registration.client_id in self._replaced:
                    continue
                try:
                    self._beat(registration)
                except ClientReplaced as error:
                    self._replaced.add(registration.client_id)
                    logger.warning("%s", error.message)
                except SwarmError as error:
                    logger.warning(
                        "heartbeat of %r failed: %s", registration.client_id, error.message
                    )

    def again(self, client_id: str) -> None:
        """Register what is held under this id again: the server does not know it any more."""
        self._register(self._held[client_id][0])

    def _pause_s(self) -> float:
        # A copy: another thread may register meanwhile.
        return min(
            (beat_s(lease_s) for _, lease_s in list(self._held.values())), default=LEAST_BEAT_S
        )

    def _beat(self, registration: ClientRegistration) -> None:
        try:
            self._heartbeat(registration.client_id)
        except NotFoundError:
            self._register(registration)

    def close(self, *, wait_s: float = 5.0) -> None:
        """Stop the heartbeats and wait for the thread; the leases end by themselves. Safe to call twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)
            self._thread = None
        self._held.clear()
