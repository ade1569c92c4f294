"""The agent's tool server: answers each line with its checksum, unless an order says to die, to hang or to lie.

``python -m swarm.testing.chaos.tool PORT FOLDER``
"""

from __future__ import annotations

import asyncio
import os
import sys
import zlib
from pathlib import Path

from swarm.testing.chaos.orders import Mischief, Orders, Part
from swarm.testing.chaos.orphans import end_with_parent

HANG_S = 3.0
"""A hung tool and a hung sandbox are let go after this, so that no process outlives a proof for long."""


def checksum(text: str) -> str:
    """Return what the tool answers to ``text``."""
    return str(zlib.crc32(text.encode()) % 1000)


async def ask_tool(port: int, text: str) -> str:
    """Ask the tool server.

    Raises:
        OSError: It is not there, or it went away.
        ValueError: It answered something else than a number.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text.encode().replace(b"\n", b" ") + b"\n")
        answer = (await reader.readline()).decode().strip()
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("the tool hung up")
    return str(int(answer))


async def ask_sandbox(orders: Orders, text: str) -> str:
    """Run a small program in a process of its own and return its last line.

    Raises:
        ValueError: It died, or answered something else than a number.
    """
    mischief = orders.take(Part.SANDBOX)
    script = f"echo {checksum(text)}"
    if mischief is Mischief.DIE:
        script = "kill -9 $$"
    elif mischief is Mischief.HANG:
        script = f"exec sleep {HANG_S}"
    elif mischief is Mischief.LIE:
        script = "echo Segmentation fault"
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return str(int(out.decode() or "nothing"))


async def _serve(port: int, orders: Orders) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode().strip()
        mischief = orders.take(Part.TOOL)
        if mischief is Mischief.DIE:
            os._exit(9)
        if mischief is Mischief.HANG:
            await asyncio.sleep(HANG_S)
        text = "not a number" if mischief is Mischief.LIE else checksum(line)
        writer.write(text.encode() + b"\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(_serve(int(sys.argv[1]), Orders(Path(sys.argv[2]))))
