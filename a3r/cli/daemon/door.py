"""The daemon's second door: workers of other hosts come in here, over TLS, each with its own token, and reach nothing else."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from a3r.core.addresses import is_loopback
from a3r.core.errors import WorkspaceError
from a3r.core.settings import Settings
from a3r.hub.auth import REMOTE

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
KEEP_ALIVE_S = 60
"""Idle connections stay open for longer than a worker is silent: one that is closed in the moment of the next request costs that."""
OPEN = ("/worker/v1/", "/servers/v1", "/health")
"""What may be reached from outside; commands of the person never."""


@dataclass(frozen=True)
class Door:
    """Where to listen, and with which certificate."""

    host: str
    port: int
    cert: Path | None
    key: Path | None

    @property
    def url(self) -> str:
        """As a worker on the same machine would dial it."""
        scheme = "https" if self.cert is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    def listen(self) -> socket.socket:
        """Return the listening socket.

        Raises:
            WorkspaceError: the address is not this machine's, or it is taken.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # The protocol is named so that asyncio sends without delay, as in ``process.listen``.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self.host, self.port))
        except OSError as error:
            sock.close()
            raise WorkspaceError(
                f"The daemon cannot listen for workers on {self.host}:{self.port}: {error.strerror}.",
                hint="Change the setting workers_listen, or stop what has the port.",
            ) from error
        sock.listen(256)
        sock.setblocking(False)
        return sock

    def config(self, app: App) -> uvicorn.Config:
        """Uvicorn's configuration of this door in front of ``app``."""
        return uvicorn.Config(
            only_workers(app),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=3,
            ssl_certfile=None if self.cert is None else str(self.cert),
            ssl_keyfile=None if self.key is None else str(self.key),
        )


def door_of(settings: Settings) -> Door | None:
    """The door that the settings ask for; None = only this machine's workers can come.

    Raises:
        WorkspaceError: no ``host:port``, no TLS although others could listen in, or a certificate that does not work.
    """
    if not settings.workers_listen:
        return None
    host, port = _address(settings.workers_listen)
    cert = Path(settings.workers_tls_cert) if settings.workers_tls_cert else None
    key = Path(settings.workers_tls_key) if settings.workers_tls_key else None
    if (cert is None) != (key is None):
        raise WorkspaceError(
            "TLS takes a certificate and its key.",
            hint="Set both workers_tls_cert and workers_tls_key (PEM files).",
        )
    if cert is not None and key is not None:
        _check_pair(cert, key)
    elif not is_loopback(host):
        raise WorkspaceError(
            f"On {host!r} without TLS, the tokens of workers would travel in clear text.",
            hint="Set workers_tls_cert and workers_tls_key; or leave workers_listen out and let workers come through an "
            "SSH tunnel, which `a3r host add` makes.",
        )
    return Door(host, port, cert, key)


def only_workers(app: App) -> App:
    """``app`` with nothing but the workers' routes, every request marked as one from outside."""

    async def guarded(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})[REMOTE] = True
            if not str(scope["path"]).startswith(OPEN):
                scope = {**scope, "path": "/nothing-here", "raw_path": b"/nothing-here"}
        await app(scope, receive, send)

    return guarded


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise WorkspaceError(
            f"workers_listen is {text!r}, which is no address.", hint="Write it as 0.0.0.0:8443."
        )
    return host, int(port)


def _check_pair(cert: Path, key: Path) -> None:
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise WorkspaceError(
            f"{str(cert)!r} and {str(key)!r} are not a certificate and its key: {error}.",
            hint="Both are PEM files, the key without a password; the certificate file may hold the chain.",
        ) from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")
