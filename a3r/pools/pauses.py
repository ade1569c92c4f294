"""When not to ask: an engine that does not answer, and a pool whose jobs fail before their worker has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from a3r.core.pools import PoolJobState
from a3r.store.rows import PoolJobRow

FIRST_S = 5.0
MOST_S = 600.0
PLENTY = 10_000


@dataclass
class Pauses:
    """Growing pauses, a name each; forgotten with the process."""

    _failures: dict[str, int] = field(default_factory=dict[str, int])
    _until: dict[str, float] = field(default_factory=dict[str, float])

    def is_over(self, name: str, now: float) -> bool:
        """Whether it may be tried."""
        return now >= self._until.get(name, 0.0)

    def failed(self, name: str, now: float) -> float:
        """Begin a pause; returns how long it is, in seconds."""
        count = self._failures[name] = self._failures.get(name, 0) + 1
        pause_s = grown(count)
        self._until[name] = now + pause_s
        return pause_s

    def worked(self, name: str) -> None:
        """Begin anew."""
        self._failures.pop(name, None)
        self._until.pop(name, None)


def grown(failures: int) -> float:
    """The pause after so many failures in a row, in seconds: 5, 10, 20 … 600."""
    return min(MOST_S, FIRST_S * 2 ** min(failures - 1, 10))


def may_ask(jobs: Sequence[PoolJobRow], now: float) -> int:
    """How many further jobs a pool may be asked for, as its last ones went (``jobs``: oldest first).

    As long as jobs fail without a worker, one at a time after a growing pause: a missing a3r on the nodes must not fill a cluster.
    """
    failed = failed_in_a_row(jobs)
    if not failed:
        return PLENTY
    trying = any(j.ended_at is None and j.worker_id is None for j in jobs)
    return 0 if trying or now < _next_try(failed) else 1


def failure_words(jobs: Sequence[PoolJobRow], now: float) -> str:
    """Why nothing, or little, is asked for; empty when all is well."""
    failed = failed_in_a_row(jobs)
    if not failed:
        return ""
    wait_s = max(0.0, _next_try(failed) - now)
    return f"{len(failed)} jobs in a row brought no worker; next try in {wait_s:.0f} s; the last: {failed[0].detail}"


def failed_in_a_row(jobs: Sequence[PoolJobRow]) -> list[PoolJobRow]:
    """Jobs that failed since the last one that brought a worker, newest end first."""
    over = sorted((j for j in jobs if j.ended_at is not None), key=lambda j: j.ended_at or 0.0)
    failed: list[PoolJobRow] = []
    for job in reversed(over):
        if job.worker_id is not None:
            break
        if job.state is PoolJobState.FAILED:
            failed.append(job)
    return failed


def _next_try(failed: Sequence[PoolJobRow]) -> float:
    return (failed[0].ended_at or 0.0) + grown(len(failed))
