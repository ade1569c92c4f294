"""Tells a hub that this server exists, again and again, and never lets that harm the server.

Every failure is logged once until it is over; the hub forgets a server that says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import aiohttp

from swarm.protocol.errors import ConfigError
from swarm.protocol.servers import HUB_ROUTE, AnnounceReply, ServerRecord
from swarm.server.exposure import is_loopback

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 30.0
LONGEST_ANSWER = 65_536
LOOK_S = 0.5
"""The hub hears of a change of the record at most this late."""


def read_hub_token(path: Path | None) -> str:
    """Return the hub's worker or admin token from a file.

    Raises:
        ConfigError: No file was given, it cannot be read, or it is empty.
    """
    hint = "Give --announce-token-file: a file that holds the hub's worker token alone."
    if path is None:
        raise ConfigError("To announce takes the hub's token.", hint=hint)
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"The hub's token cannot be read from {str(path)!r}: {why}.", hint=hint
        ) from error
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(f"The file {str(path)!r} does not hold one token.", hint=hint)
    return token


def check_address(url: str) -> SplitResult:
    """Return the parts of an ``http(s)`` address.

    Raises:
        ConfigError: It is none, or it holds a secret.
    """
    wrong = ConfigError(f"The address {url!r} is not a URL.", hint="Write http(s)://HOST:PORT.")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that does not close, a port that is none
        raise wrong from None
    if not known or not url.isprintable():
        raise wrong
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"The address of {parts.hostname!r} holds a name or a password, which lists and logs would show.",
            hint="Write http(s)://HOST:PORT; the hub's token comes from --announce-token-file.",
        )
    return parts


def check_hub(url: str, *, insecure: bool) -> None:
    """Check the hub's address.

    Raises:
        ConfigError: It is no URL, or would carry the token unencrypted over a network and ``insecure`` is not set.
    """
    parts = check_address(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not insecure:
        raise ConfigError(
            f"The hub's token would travel unencrypted to {parts.hostname!r}.",
            hint="Use https, an SSH tunnel to a loopback port, or --insecure-http if the network is trusted.",
        )


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body of a hub's answer; ``ValueError`` when it is longer than any that a hub gives."""
    body = b""
    while part := await answer.content.read(LONGEST_ANSWER):
        body += part
        if len(body) > LONGEST_ANSWER:
            raise ValueError(f"the hub's answer is longer than {LONGEST_ANSWER} bytes")
    return body


class Announcer:
    """Puts the record at the hub and renews it until ``run`` is cancelled, which withdraws it."""

    def __init__(self, hub: str, token: str, record: Callable[[], ServerRecord]) -> None:
        """``record`` returns what to say now; it must not raise."""
        self._hub = hub.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._record = record
        self._told = ""
        """The last failure that was logged; empty = it works."""

    async def run(self) -> None:
        """Announce for ever. Only cancellation ends it."""
        retry_s = FIRST_RETRY_S
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as http:
            try:
                while True:
                    record = self._record()
                    ttl_s = await self._put(http, record)
                    if ttl_s is None:
                        await asyncio.sleep(retry_s)
                        retry_s = min(LONGEST_RETRY_S, 2 * retry_s)
                    else:
                        retry_s = FIRST_RETRY_S
                        await self._until_due(record, ttl_s / 3)
            finally:
                await self._withdraw(http)

    async def _until_due(self, told: ServerRecord, renew_s: float) -> None:
        """Wait until the record must be renewed or has changed."""
        for _ in range(max(1, int(renew_s / LOOK_S))):
            await asyncio.sleep(min(LOOK_S, renew_s))
            if self._record() != told:
                return

    async def _put(self, http: aiohttp.ClientSession, record: ServerRecord) -> float | None:
        """Return for how long the hub keeps the record; None when it does not."""
        url = f"{self._hub}{HUB_ROUTE}/{record.server_id}"
        try:
            async with http.put(
                url, json=record.model_dump(mode="json"), allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    return self._failed(f"the hub answered HTTP {answer.status}")
                ttl_s = AnnounceReply.model_validate_json(await _read(answer)).ttl_s
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._failed(f"{type(error).__name__}: {error}".rstrip(": "))
        if self._told:
            logger.info("Announced to the hub %s again", self._hub)
        self._told = ""
        return ttl_s

    def _failed(self, why: str) -> None:
        if why != self._told:
            logger.warning("Not announced to the hub %s: %s", self._hub, why)
        self._told = why

    async def _withdraw(self, http: aiohttp.ClientSession) -> None:
        """Take the record back; the hub forgets it by itself when this fails."""
        if self._told:
            return
        url = f"{self._hub}{HUB_ROUTE}/{self._record().server_id}"
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(2.0), http.delete(url, allow_redirects=False) as answer:
                await answer.read()
