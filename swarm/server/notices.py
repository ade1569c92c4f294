"""Who is told that the server listens, and that it has ended: a waiter, a terminal, ``swarm list``, a hub."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from swarm.protocol.servers import ServerRecord
from swarm.protocol.states import EngineState
from swarm.server.announce import Announcer
from swarm.server.keys import Tokens
from swarm.server.registry import LocalServer, birth_of, enter
from swarm.server.serve_options import ServeOptions
from swarm.server.service.core import VERSION
from swarm.server.service.service import SwarmService

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where one server runs: its folder, its listening socket, and what it was asked for."""

    options: ServeOptions
    state_dir: Path
    sock: socket.socket
    hub_token: str = field(default="", repr=False)

    def url(self, wildcard: str = "") -> str:
        """Return the address; ``wildcard`` (default: loopback) stands for all addresses of this machine, which cannot be dialled."""
        host, port = self.sock.getsockname()[:2]
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = wildcard or ("127.0.0.1" if address.version == 4 else "::1")
        dialled = f"[{host}]" if ":" in host else host
        return f"{self.options.scheme}://{dialled}:{port}"


class Notices:
    """Posted once the server listens, withdrawn when it ends.

    None can keep the server from running, but a ready file that cannot be written: its waiter would wait for ever.
    """

    def __init__(self, place: Place, service: SwarmService, tokens: Tokens) -> None:
        self._place = place
        self._service = service
        self._tokens = tokens
        self._entry: Path | None = None
        self._announcing: asyncio.Task[None] | None = None

    def post(self) -> None:
        """Tell everyone; the ready record comes last of what is on this machine."""
        place, options = self._place, self._place.options
        url = place.url()
        logger.info("Listening on %s (state in %s)", url, place.state_dir)
        self._show_tokens()
        self._register(url)
        if options.announce is not None:
            announcer = Announcer(options.announce, place.hub_token, self._record)
            self._announcing = asyncio.create_task(announcer.run(), name="announce")
        if options.ready_file is not None:
            record = {
                "url": url,
                "port": place.sock.getsockname()[1],
                "pid": os.getpid(),
                "state_dir": str(place.state_dir),
                "server_id": self._tokens.server_id,
            }
            _write_atomically(options.ready_file, json.dumps(record))

    async def withdraw(self) -> None:
        """Take back what would send somebody to a dead server. Safe without ``post``."""
        if self._entry is not None:
            with contextlib.suppress(OSError):
                self._entry.unlink(missing_ok=True)
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)

    def _show_tokens(self) -> None:
        """Show the tokens to a person; a log file, a pipe or a collector never sees them."""
        if not sys.stderr.isatty():
            return
        tokens = self._tokens
        lines = (f"  {name:<7}{getattr(tokens, name)}" for name in ("admin", "client", "eval"))
        path = self._place.state_dir / "tokens.json"
        sys.stderr.write("\n".join([f"Tokens (also in {path}):", *lines, ""]))
        sys.stderr.flush()

    def _register(self, url: str) -> None:
        folder = self._place.options.registry
        if folder is None:
            return
        pid = os.getpid()
        server = LocalServer(
            server_id=self._tokens.server_id,
            url=url,
            pid=pid,
            born=birth_of(pid),
            state_dir=str(self._place.state_dir),
            version=VERSION,
        )
        try:
            self._entry = enter(folder, server)
        except OSError as error:
            logger.warning("`swarm list` will not show this server: %s", error)

    def _record(self) -> ServerRecord:
        status = self._service.status()
        host = socket.gethostname()
        return ServerRecord(
            server_id=status.server_id,
            url=self._place.options.announce_url or self._place.url(host),
            state=status.state,
            model=status.model,
            pid=status.pid,
            version=status.version,
            host=host,
            waiting=status.state is EngineState.OFFLINE,
        )


def _write_atomically(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
