"""Where a client connects and how long it waits; one frozen value shared by both transports."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from swarm.client.errors import ClientUsageError

LONGEST_ID = 123
"""Characters of a client's id: the server takes 128, and an evaluator registers with ``-eval`` behind it."""


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_id(client_id: str) -> bool:
    try:
        client_id.encode()  # half a surrogate pair cannot be sent
    except UnicodeEncodeError:
        return False
    return 1 <= len(client_id) <= LONGEST_ID and client_id not in (".", "..")


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
    named: bool = False
    """Whether the caller chose ``client_id``; only then can a later process go on as the same client."""
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    """This life of the client: its registrations under one id are one client, those of another instance replace it."""
    code_hash: str = ""
    """Version of the client's code, told at registration; empty = not told (``run_episodes`` finds its own)."""
    timeout_s: float = 30.0
    """Deadline of one control call, all its tries together."""
    chat_timeout_s: float = 600.0
    """Deadline of one chat call; it includes the time that the server holds calls while weights are synced."""

    def __post_init__(self) -> None:
        """Refuse an address or an id that can never work; drop a trailing slash or ``/v1``."""
        if not _is_address(self.url):
            raise ClientUsageError(
                f"The server address {self.url!r} is not a URL.",
                hint="Write it as http://127.0.0.1:8000 (the `url` of the server's ready record).",
            )
        if not _is_id(self.client_id):
            raise ClientUsageError(
                f"{self.client_id[:200]!r} cannot be a client's id.",
                hint=f"Take 1 to {LONGEST_ID} characters; '.' and '..' mean something else in an address.",
            )
        object.__setattr__(self, "url", self.url.rstrip("/").removesuffix("/v1").rstrip("/"))
