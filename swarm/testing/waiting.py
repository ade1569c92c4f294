"""Wait for a condition without guessing a duration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def retry_until(
    condition: Callable[[], object], *, timeout_s: float = 60.0, what: str = ""
) -> None:
    """Return once ``condition()`` is truthy, looking every few milliseconds.

    ``timeout_s`` costs nothing where the condition comes true: it is long enough for a real engine on a busy machine.

    Raises:
        AssertionError: It was still false after ``timeout_s``.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while not condition():
        if loop.time() > end:
            raise AssertionError(f"still not true after {timeout_s} s: {what or condition!r}")
        await asyncio.sleep(0.002)
