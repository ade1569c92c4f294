"""Holding the controller lease: taken again after it was lost, it is renewed again."""

from __future__ import annotations

import asyncio

from swarm.client.controlling import AsyncControl, SyncControl
from swarm.protocol.clients import ControllerLease
from swarm.protocol.errors import StateError
from swarm.testing import retry_until


class Lease:
    """A server's side of the lease; ``taken`` says that another client has it."""

    def __init__(self) -> None:
        self.asked = 0
        self.refused = 0
        self.taken = False

    def ask(self, _release: bool) -> ControllerLease:
        if self.taken:
            self.refused += 1
            raise StateError("Client 'other' controls this server.")
        self.asked += 1
        return ControllerLease(client_id="me", lease_s=0.3)

    async def ask_async(self, release: bool) -> ControllerLease:
        return self.ask(release)


async def test_a_lease_that_was_lost_and_taken_again_is_renewed_again() -> None:
    lease = Lease()
    control = SyncControl(lease.ask)
    control.take()
    lease.taken = True
    await retry_until(lambda: lease.refused == 1)
    lease.taken = False
    control.take()
    await retry_until(lambda: lease.asked >= 4)
    await asyncio.to_thread(control.close)


async def test_a_lease_that_was_lost_and_taken_again_is_renewed_again_by_the_async_client() -> None:
    lease = Lease()
    control = AsyncControl(lease.ask_async)
    await control.take()
    lease.taken = True
    await retry_until(lambda: lease.refused == 1)
    lease.taken = False
    await control.take()
    await retry_until(lambda: lease.asked >= 4)
    await control.close()
