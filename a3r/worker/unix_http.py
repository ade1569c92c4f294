"""HTTP over a Unix socket for urllib3: where a link of ssh ends on a worker's host, no other user can listen or dial."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError

SCHEME = "unix:"
"""``--hub unix:/path/of/the.sock``."""
PLAIN_URL = "http://hub"
"""The address in requests that go through the socket."""


class _Connection(HTTPConnection):
    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__("hub", **options)
        self._path = path

    def _new_conn(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if isinstance(self.timeout, int | float):
                sock.settimeout(self.timeout)
            sock.connect(str(self._path))
        except OSError as error:
            sock.close()
            raise NewConnectionError(self, f"{self._path}: {error}") from error
        return sock


class _Pool(HTTPConnectionPool):
    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__("hub", **options)
        self._path = path

    def _new_conn(self) -> Any:
        self.num_connections += 1
        return _Connection(self._path, timeout=self.timeout.connect_timeout)


class UnixManager(urllib3.PoolManager):
    """Whatever the URL's host is, requests go to the socket at ``path``."""

    def __init__(self, path: Path, *, maxsize: int) -> None:
        """Connect lazily; the socket's file may come later, and be replaced."""
        super().__init__(retries=False)
        self._make = lambda: _Pool(path, maxsize=maxsize, retries=False)
        self._pool = self._make()

    def connection_from_host(self, *_where: Any, **_more: Any) -> HTTPConnectionPool:
        """The one pool."""
        return self._pool

    def clear(self) -> None:
        """Close the connections."""
        self._pool.close()
        self._pool = self._make()
