"""``/servers/v1``: swarm servers that announce themselves, so that people find one that waits. Nothing is decided by it.

Kept in memory: a record lives as long as its server repeats it, and a restarted hub hears of every server within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi import Path as PathParam

from a3r.core.ports import Clock
from a3r.hub.auth import require
from a3r.hub.refusals import RequestInvalid
from a3r.hub.state import Hub
from a3r.hub.tokens import Role
from swarm.protocol.servers import (
    HUB_ROUTE,
    AnnounceReply,
    ListedServer,
    ServerList,
    ServerRecord,
)

TTL_S = 30.0
"""A server that says nothing for this long is forgotten."""
MOST_SERVERS = 1000
"""More than this at once is refused: a loop of some server must not fill the hub's memory."""

ServerId = Annotated[str, PathParam(pattern="^[0-9a-f]{16}$")]


@dataclass
class AnnouncedServers:
    """The records by server id, each with the monotonic time at which it was last put."""

    clock: Clock
    _records: dict[str, tuple[float, ServerRecord]] = field(
        default_factory=dict[str, tuple[float, ServerRecord]]
    )

    def put(self, record: ServerRecord) -> None:
        """Keep or replace a record.

        Raises:
            RequestInvalid: there are too many servers.
        """
        self._forget()
        if record.server_id not in self._records and len(self._records) >= MOST_SERVERS:
            raise RequestInvalid(
                f"This hub lists {MOST_SERVERS} servers already.",
                hint="Stop servers that nobody needs.",
            )
        self._records[record.server_id] = (self.clock.monotonic(), record)

    def remove(self, server_id: str) -> None:
        """Forget a record. Safe to call twice."""
        self._records.pop(server_id, None)

    def listed(self) -> list[ListedServer]:
        """Return the living records by server id."""
        self._forget()
        now = self.clock.monotonic()
        return [
            ListedServer(**record.model_dump(), age_s=round(now - at, 1))
            for _, (at, record) in sorted(self._records.items())
        ]

    def _forget(self) -> None:
        oldest = self.clock.monotonic() - TTL_S
        self._records = {k: v for k, v in self._records.items() if v[0] > oldest}


def server_router(hub: Hub) -> APIRouter:
    """Return the routes over a book of servers of their own."""
    servers = AnnouncedServers(hub.clock)
    allowed = Depends(require(hub, Role.WORKER, Role.ADMIN))
    router = APIRouter(prefix=HUB_ROUTE, dependencies=[allowed])

    @router.get("")
    async def list_servers() -> ServerList:
        """The servers that announced themselves within ``TTL_S``."""
        return ServerList(servers=servers.listed())

    @router.put("/{server_id}")
    async def announce(server_id: ServerId, record: ServerRecord) -> AnnounceReply:
        """Keep a server's record until ``ttl_s`` has passed without another."""
        if record.server_id != server_id:
            raise RequestInvalid(
                f"The record is of server {record.server_id!r}, the path of {server_id!r}.",
                hint="Put a server's record under its own id.",
            )
        servers.put(record)
        return AnnounceReply(ttl_s=TTL_S)

    @router.delete("/{server_id}")
    async def withdraw(server_id: ServerId) -> ServerList:
        """Forget a server that ends; answers with those that are left."""
        servers.remove(server_id)
        return ServerList(servers=servers.listed())

    return router
