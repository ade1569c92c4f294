"""HTTP/1.1 messages as bytes: enough to forward them whole, and no more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One request or answer, as it came."""

    raw: bytes
    path: str
    """Of a request; of an answer its status code."""


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """Read one whole message; None when the other side closed before it began.

    Raises:
        IncompleteReadError: It closed in the middle.
        ValueError: What came is not HTTP.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    path = lines[0].split(" ")[1]
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Message(head + await _chunks(reader), path)
    return Message(head + await reader.readexactly(int(headers.get("content-length", "0"))), path)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if size == 0:
            return body
