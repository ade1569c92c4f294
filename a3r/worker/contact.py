"""How one of the worker's loops gets on with the hub: when to try again, and what of it is worth a line of the log.

A hub that is away for a night would else be a line a second, and the one that tells why would be lost among them.
"""

from __future__ import annotations

import logging
import time

from a3r.core.errors import A3RError, HubUnreachable
from a3r.worker.uplink import Backoff

logger = logging.getLogger(__name__)


class Contact:
    """Tells the log when the hub's answer changes, not at each try. For one thread."""

    def __init__(
        self, doing: str, first_s: float = 1.0, most_s: float = 30.0, *, tells_away: bool = True
    ) -> None:
        """``doing``: what is tried, in words. Waits grow from ``first_s`` to ``most_s`` seconds.

        ``tells_away``: a hub that does not answer is worth a line; False where another loop tells it.
        """
        self._doing, self._backoff, self._tells_away = doing, Backoff(first_s, most_s), tells_away
        self._told, self._since = "", 0.0

    def failed(self, error: Exception) -> float:
        """Seconds to wait before the next try. Logged unless it is what the last try met too; a fault of ours with its traceback."""
        away = isinstance(error, HubUnreachable)
        if away and not self._tells_away:
            return self._backoff.failed()
        # Refused, timed out, unreachable: to whoever reads the log it is one thing.
        told = "away" if away else f"{type(error).__name__}: {error}"
        if told != self._told:
            self._since = self._since or time.monotonic()
            if isinstance(error, A3RError):
                hint = f" ({error.hint})" if error.hint else ""
                logger.warning("%s: %s%s", self._doing, error.message, hint)
            else:
                logger.error("%s failed", self._doing, exc_info=error)
        self._told = told
        return self._backoff.failed()

    def worked(self) -> bool:
        """The hub answered; True when it did not the time before."""
        again = bool(self._told)
        if again:
            away_s = time.monotonic() - self._since
            logger.info("%s: works again after %.0f s", self._doing, away_s)
        self._told, self._since = "", 0.0
        self._backoff.worked()
        return again
