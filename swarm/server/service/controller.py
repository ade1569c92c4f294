"""The controller lease: while one client holds it, only that client configures, starts and stops.

A courtesy between clients that all have the admin token, against two of them steering one server; not a power of its own.
In memory: after a restart of the server nobody holds it.
"""

from __future__ import annotations

from swarm.protocol.clients import ControllerLease, ControllerRequest
from swarm.protocol.errors import StateError
from swarm.server.service.clock import Clock


class Controller:
    """Who steers the server, until when (monotonic seconds)."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self.lease_s = lease_s
        self._client_id = ""
        self._lease_end = 0.0

    @property
    def holder(self) -> str:
        """Client id that holds a live lease; empty when nobody does."""
        return self._client_id if self._clock.monotonic() < self._lease_end else ""

    def ask(self, request: ControllerRequest) -> ControllerLease:
        """Take, renew or give back the lease. Giving back what one does not hold does nothing.

        Raises:
            StateError: Another client holds a live lease.
        """
        client_id, holder = request.client_id, self.holder
        if request.release:
            if client_id == holder:
                self._client_id, self._lease_end = "", 0.0
            return ControllerLease(client_id=client_id, lease_s=0.0)
        self.require(client_id, "taking the controller lease")
        self._client_id = client_id
        self._lease_end = self._clock.monotonic() + self.lease_s
        return ControllerLease(client_id=client_id, lease_s=self.lease_s)

    def seen(self, client_id: str) -> None:
        """Renew the lease when its holder says something; others change nothing, and an ended lease stays ended."""
        if client_id and client_id == self.holder:
            self._lease_end = self._clock.monotonic() + self.lease_s

    def require(self, who: str, action: str) -> None:
        """Check that ``who`` may steer.

        Raises:
            StateError: Another client holds a live lease; the hint says for how long.
        """
        holder = self.holder
        if holder and who != holder:
            left = self._lease_end - self._clock.monotonic()
            raise StateError(
                f"Client {holder!r} controls this server; {action} is its business now.",
                hint=f"Ask it to give the lease back, or wait: it ends {left:.0f} s after that client's last word.",
                controller=holder,
            )
