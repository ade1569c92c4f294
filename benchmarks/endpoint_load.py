"""A closed-loop HTTP load for ``endpoint.py``: a few connections, each sending its next request when its last was answered.

Speaks just enough HTTP/1.1 over asyncio's protocols that one request costs the machine little beside what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

NextRequest = Callable[[int], bytes | None]
"""Number of the connection -> the bytes of its next request; None = it is done."""


def request_bytes(path: str, key: str, body: bytes, *headers: str) -> bytes:
    """One POST with a bearer key."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Load:
    """What a load came to."""

    wall_s: float = 0.0
    seconds: list[float] = field(default_factory=list[float])
    """Of each request, from its sending to its last byte."""
    bodies: list[bytes] = field(default_factory=list[bytes])
    """As answered, framing of chunks included."""

    def quantile(self, share: float) -> float:
        """Seconds that ``share`` of the requests did not take longer than."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def figures(self) -> dict[str, Any]:
        """As the result file has them."""
        return {
            "requests_per_s": round(len(self.seconds) / self.wall_s, 1),
            "p50_ms": round(self.quantile(0.5) * 1e3, 3),
            "p99_ms": round(self.quantile(0.99) * 1e3, 3),
        }


class _Connection(asyncio.Protocol):
    def __init__(self, number: int, source: NextRequest, load: Load) -> None:
        self._number, self._source, self._load = number, source, load
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._began = 0.0
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0 or not self._whole(head):
            return
        self._load.seconds.append(time.perf_counter() - self._began)
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self._buffer[:2000].decode(errors="replace")))
            self._transport.close()
            return
        self._load.bodies.append(self._buffer[head + 4 :])
        self._buffer = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or RuntimeError("the server closed the connection"))

    def _whole(self, head: int) -> bool:
        headers = self._buffer[:head].lower()
        at = headers.find(b"content-length:")
        if at < 0:
            return self._buffer.endswith(b"\r\n0\r\n\r\n")
        length = int(headers[at + 15 : (headers + b"\r\n").index(b"\r\n", at)])
        return len(self._buffer) >= head + 4 + length

    def begin(self) -> None:
        """Send the first request."""
        self._next()

    def _next(self) -> None:
        request = self._source(self._number)
        if request is None:
            if not self.done.done():
                self.done.set_result(None)
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)


async def drive(port: int, connections: int, source: NextRequest) -> Load:
    """Run until every connection is done.

    Raises:
        RuntimeError: An answer was not 200; the text holds it.
    """
    loop, load = asyncio.get_running_loop(), Load()
    made = [
        await loop.create_connection(lambda n=n: _Connection(n, source, load), "127.0.0.1", port)
        for n in range(connections)
    ]
    await asyncio.sleep(0.005 * connections)  # until the server has accepted all of them
    began = time.perf_counter()
    for _, protocol in made:
        protocol.begin()
    await asyncio.gather(*(protocol.done for _, protocol in made))
    load.wall_s = time.perf_counter() - began
    return load


def shared(requests: Sequence[bytes]) -> NextRequest:
    """All connections take from one list, in order."""
    left = iter(requests)
    return lambda _number: next(left, None)
