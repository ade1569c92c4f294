"""Wait for a condition without guessing a duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def retry_until(condition: Callable[[], T], timeout_s: float = 60.0, what: str = "") -> T:
    """Return the first true value of ``condition()``, looking some thirty times a second.

    ``timeout_s`` costs nothing where the condition comes true: it is long enough for a busy machine.

    Raises:
        AssertionError: it was still false after ``timeout_s``.
    """
    ends = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > ends:
            raise AssertionError(f"still not true after {timeout_s} s: {what or condition!r}")
        time.sleep(0.03)
    return value
