"""Where a client connects and how long it waits; one frozen value shared by both transports."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from swarm.client.errors import ClientUsageError


def new_client_id() -> str:
    """A fresh id; give your own when a restarted client should replace its former self."""
    return f"client-{uuid.uuid4().hex[:10]}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Address, token and deadlines."""

    url: str
    """``http(s)://host:port[/prefix]`` without ``/v1``."""
    token: str = field(repr=False)
    client_id: str = field(default_factory=new_client_id)
    timeout_s: float = 30.0
    """Deadline of one control call, all its tries together."""
    chat_timeout_s: float = 600.0
    """Deadline of one chat call; it includes the time that the server holds calls while weights are synced."""

    def __post_init__(self) -> None:
        """Refuse an address that can never work; drop a trailing slash or ``/v1``."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientUsageError(
                f"The server address {self.url!r} is not a URL.",
                hint="Write it as http://127.0.0.1:8000 (the `url` of the server's ready record).",
            )
        object.__setattr__(self, "url", self.url.rstrip("/").removesuffix("/v1").rstrip("/"))
