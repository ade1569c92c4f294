"""The real clock; tests inject their own ``a3r.core.ports.Clock``."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time and monotonic time of this machine, both in seconds."""

    def time(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
