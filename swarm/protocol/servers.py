"""What a server says of itself to a hub that lists servers (``swarm serve --announce``, ``swarm list``)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from swarm.protocol.states import EngineState

HUB_ROUTE = "/servers/v1"
"""Below the hub's address: ``PUT`` and ``DELETE {route}/{server_id}``, ``GET {route}``."""


class ServerRecord(BaseModel):
    """One server. Every text of it was said by the server: hostile input to whoever shows it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    url: str = Field(max_length=512, pattern=r"^https?://\S+$")
    """Where clients reach it, as the server believes or was told (``--announce-url``)."""
    state: EngineState
    model: str | None = Field(default=None, max_length=1024)
    """None = not configured yet."""
    pid: int
    version: str = Field(max_length=64)
    host: str = Field(default="", max_length=256)
    """Name of its machine."""
    waiting: bool = False
    """OFFLINE, so that somebody may configure and start it."""


class AnnounceReply(BaseModel):
    """Answer of ``PUT {route}/{server_id}``: the record is forgotten unless it is put again within this."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ttl_s: float = Field(ge=1.0, le=86_400.0, allow_inf_nan=False)


class ListedServer(ServerRecord):
    """A record as the hub lists it."""

    age_s: float = 0.0
    """Since it was last put."""


class ServerList(BaseModel):
    """Answer of ``GET {route}``, by server id."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    servers: list[ListedServer]
