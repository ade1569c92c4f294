"""Who is connected: registrations and their leases. Knows nothing of episodes; the caller aborts those of a lost client."""

from __future__ import annotations

from dataclasses import dataclass

from swarm.protocol.errors import NotFoundError
from swarm.protocol.messages import ClientRegistration
from swarm.protocol.states import Role
from swarm.server.service.clock import Clock


@dataclass(slots=True)
class Client:
    """One registered client; ``lease_end`` is monotonic seconds."""

    client_id: str
    role: Role
    lease_end: float


class Clients:
    """Registered clients by id. A client that only asks for episodes and never registered has no lease to lose."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self.lease_s = lease_s
        self._by_id: dict[str, Client] = {}

    def register(self, registration: ClientRegistration) -> None:
        """Begin a lease; an id already known starts again."""
        end = self._clock.monotonic() + self.lease_s
        client_id = registration.client_id
        self._by_id[client_id] = Client(client_id, registration.role, end)

    def heartbeat(self, client_id: str) -> None:
        """Renew a lease.

        Raises:
            NotFoundError: No such client, or its lease ended.
        """
        if client_id not in self._by_id:
            raise NotFoundError(
                f"Client {client_id!r} is not registered, or its lease ended.",
                hint="Register again (POST /swarm/clients); its open episodes are gone.",
            )
        self.seen(client_id)

    def seen(self, client_id: str) -> None:
        """Renew the lease of a client that just asked for something; unknown ids are ignored."""
        client = self._by_id.get(client_id)
        if client is not None:
            client.lease_end = self._clock.monotonic() + self.lease_s

    def expire(self) -> list[str]:
        """Remove the clients whose lease ended and return their ids."""
        now = self._clock.monotonic()
        gone = [c.client_id for c in self._by_id.values() if c.lease_end <= now]
        for client_id in gone:
            del self._by_id[client_id]
        return gone
