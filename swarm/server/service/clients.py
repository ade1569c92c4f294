"""Who is connected: registrations, their leases, and what each client has done in this process's life.

Knows nothing of how episodes end; the caller ends those of a client that is lost. What must outlive the process (task
cursors, which kind of token an id belongs to) is in ``client_notes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swarm.protocol.clients import ClientInfo, ClientRegistration
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import ClientReplaced, NotFoundError
from swarm.protocol.states import EpisodeKind, EpisodeState, Role
from swarm.server.service.clock import Clock
from swarm.server.service.episodes import Episode

KEEP_GONE = 512
"""Clients without a lease whose figures are kept; beyond that the ones longest unheard of are forgotten."""


@dataclass(slots=True)
class Client:
    """One client and its figures; times are monotonic seconds unless they say otherwise."""

    client_id: str
    role: Role
    registered_at: float
    """Unix seconds; of the first word when it never registered."""
    last_seen: float
    lease_end: float | None = None
    """None: no lease, because it ended or because the client only asked for episodes and never registered."""
    code_hash: str = ""
    instance: str = ""
    registrations: int = 0
    finished: int = 0
    contributed: int = 0
    failed: int = 0
    calls: int = 0
    sampled_tokens: int = 0
    latency_s: float = 0.0
    """Grant to finish, all finished episodes together."""
    streak: int = 0
    """Episodes that failed since the last one that finished."""
    last_played: float | None = None
    """When a train episode of it ended last; None = none did."""

    @property
    def life(self) -> str:
        """Names this life of the client: its instance, or (when it told none) its registration."""
        return self.instance or f"#{self.registrations}"

    def info(self, now: float, open_episodes: int) -> ClientInfo:
        """Return the wire form at ``now``, without the cursor."""
        lease_left_s = 0.0 if self.lease_end is None else max(0.0, self.lease_end - now)
        return ClientInfo(
            client_id=self.client_id,
            role=self.role,
            code_hash=self.code_hash,
            registered_at=self.registered_at,
            last_seen_s=max(0.0, now - self.last_seen),
            lease_left_s=lease_left_s,
            open=open_episodes,
            finished=self.finished,
            contributed=self.contributed,
            failed=self.failed,
            calls=self.calls,
            sampled_tokens=self.sampled_tokens,
            latency_mean_s=self.latency_s / self.finished if self.finished else None,
        )


class Clients:
    """Clients by id. One that only asks for episodes and never registered has no lease to lose."""

    def __init__(self, clock: Clock, lease_s: float, *, keep_gone: int = KEEP_GONE) -> None:
        self._clock = clock
        self.lease_s = lease_s
        self._keep_gone = keep_gone
        self._live: dict[str, Client] = {}
        self._gone: dict[str, Client] = {}
        """Without a lease, in the order of what they said last."""

    # -- leases ---------------------------------------------------------------------------------------------

    def is_restart(self, registration: ClientRegistration) -> bool:
        """Whether the id belongs to an earlier life of this client, whose open episodes nobody plays any more."""
        known = self._find(registration.client_id)
        if known is None or not registration.instance:
            return True
        return known.instance != registration.instance

    def register(self, registration: ClientRegistration) -> None:
        """Begin a lease; an id already known starts again and keeps its figures."""
        restart = self.is_restart(registration)
        client = self._taken(registration.client_id, registration.role)
        if restart or registration.code_hash:  # the same instance without a hash says nothing new
            client.code_hash = registration.code_hash
        client.role, client.instance = registration.role, registration.instance
        client.registrations += 1
        client.registered_at = self._clock.time()
        self._gone.pop(client.client_id, None)
        self._live[client.client_id] = client
        self._renew(client)

    def heartbeat(self, client_id: str, instance: str = "") -> None:
        """Renew a lease.

        Raises:
            NotFoundError: No such client, or its lease ended.
            ClientReplaced: A later instance registered under the same id.
        """
        client = self.require(client_id)
        _check_instance(client, instance)
        self._renew(client)

    def require(self, client_id: str) -> Client:
        """Return a client that has a lease.

        Raises:
            NotFoundError: No such client, or its lease ended.
        """
        client = self._live.get(client_id)
        if client is None:
            raise NotFoundError(
                f"Client {client_id!r} is not registered, or its lease ended.",
                hint="Register again (POST /swarm/clients); its open episodes are gone.",
            )
        return client

    def seen(self, client_id: str) -> None:
        """Renew the lease of a client that just asked for something; unknown ids are ignored."""
        client = self._live.get(client_id)
        if client is not None:
            self._renew(client)

    def asks(self, request: GrantRequest) -> None:
        """Note that a client asks for an episode; its lease is renewed.

        Raises:
            ClientReplaced: A later instance registered under the same id.
        """
        role = Role.TRAINER if request.kind is EpisodeKind.TRAIN else Role.EVALUATOR
        client = self._taken(request.client_id, role)
        if client.lease_end is None:
            client.instance = request.instance or client.instance
        else:
            _check_instance(client, request.instance)
        self._heard(client)

    def expire(self) -> list[str]:
        """End the leases that are over and return whose they were."""
        now = self._clock.monotonic()
        ended = [c for c in self._live.values() if c.lease_end is not None and c.lease_end <= now]
        for client in ended:
            del self._live[client.client_id]
            client.lease_end = None
            self._put_away(client)
        return [client.client_id for client in ended]

    # -- who is there ---------------------------------------------------------------------------------------

    def get(self, client_id: str) -> Client | None:
        """Return a client that has a lease, or None."""
        return self._live.get(client_id)

    def played_at(self, client_id: str) -> float | None:
        """Return when a train episode of that client ended last (monotonic seconds); None when none did, or it is unknown."""
        client = self._find(client_id)
        return client.last_played if client is not None else None

    def streak(self, client_id: str) -> int:
        """Return how many episodes of that client failed since its last one that finished."""
        client = self._find(client_id)
        return client.streak if client is not None else 0

    def live(self, role: Role | None = None) -> list[Client]:
        """Return the clients that have a lease, of one role or of all, in order of registration."""
        return [c for c in self._live.values() if role is None or c.role is role]

    def infos(self, open_episodes: Mapping[str, int], *, gone: bool = False) -> list[ClientInfo]:
        """Return the wire form of the clients that have a lease; with ``gone`` then of the others too, the latest last."""
        now = self._clock.monotonic()
        found = [*self._live.values(), *(self._gone.values() if gone else ())]
        return [client.info(now, open_episodes.get(client.client_id, 0)) for client in found]

    # -- figures --------------------------------------------------------------------------------------------

    def ended(self, episode: Episode) -> None:
        """Book an episode that just ended: its calls, and its latency when it finished."""
        client = self._taken(episode.client_id, Role.TRAINER)
        if episode.kind is EpisodeKind.TRAIN:
            client.last_played = self._clock.monotonic()
        client.calls += len(episode.calls)
        client.sampled_tokens += sum(len(call.sampled_ids) for call in episode.calls)
        if episode.state is EpisodeState.FINISHED:
            client.finished += 1
            client.streak = 0
            client.latency_s += max(0.0, self._clock.monotonic() - episode.started)

    def failed(self, client_id: str) -> None:
        """Book an episode that was aborted by its client, passed a deadline, or was lost with its client."""
        client = self._taken(client_id, Role.TRAINER)
        client.failed += 1
        client.streak += 1

    def contributed(self, episodes: Mapping[str, int]) -> None:
        """Book what a completed step consumed: client id -> train episodes."""
        for client_id, count in episodes.items():
            self._taken(client_id, Role.TRAINER).contributed += count

    # -- inside ---------------------------------------------------------------------------------------------

    def _find(self, client_id: str) -> Client | None:
        return self._live.get(client_id) or self._gone.get(client_id)

    def _taken(self, client_id: str, role: Role) -> Client:
        """Return the client of that id, new if it was not known."""
        found = self._find(client_id)
        if found is None:
            now = self._clock.monotonic()
            found = Client(client_id, role, self._clock.time(), now)
            self._put_away(found)
        return found

    def _renew(self, client: Client) -> None:
        client.lease_end = self._clock.monotonic() + self.lease_s
        client.last_seen = self._clock.monotonic()

    def _heard(self, client: Client) -> None:
        if client.lease_end is not None:
            self._renew(client)
        else:
            client.last_seen = self._clock.monotonic()
            self._put_away(client)

    def _put_away(self, client: Client) -> None:
        self._gone.pop(client.client_id, None)
        self._gone[client.client_id] = client
        while len(self._gone) > self._keep_gone:
            del self._gone[next(iter(self._gone))]


def _check_instance(client: Client, instance: str) -> None:
    """Refuse a client that was replaced; whoever names no instance is not told apart."""
    if instance and client.instance and instance != client.instance:
        raise ClientReplaced(
            f"Client {client.client_id!r} was replaced: a later one registered under the same id.",
            hint="Stop this one, or give it a client_id of its own.",
            client_id=client.client_id,
        )
