"""Waits for the end of processes: the kernel says it at once (pidfd), so that the time between two looks may grow.

Where the platform has no pidfd, or a process is gone already, the looks alone find it.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable

from a3r.worker.supervisor import start_time


class Endings:
    """One thread waits; ``wake`` may come from any."""

    def __init__(self) -> None:
        """Nothing is watched."""
        self._poll = select.poll()
        self._heard, self._tell = os.pipe()
        for end in (self._heard, self._tell):
            os.set_blocking(end, False)
        self._poll.register(self._heard, select.POLLIN)
        self._fds: dict[tuple[int, int], int] = {}

    def wait(self, processes: Iterable[tuple[int, int]], timeout_s: float) -> bool:
        """Until one of ``processes`` (pid, start time) has ended, somebody wakes us, or the time is over; True for the first two.

        One whose end was told is not told of again.
        """
        wanted = set(processes)
        for known in set(self._fds) - wanted:
            self._forget(known)
        for process in wanted - set(self._fds):
            self._watch(process)
        told = self._poll.poll(max(0.0, timeout_s * 1000))
        with contextlib.suppress(OSError):
            while os.read(self._heard, 4096):
                continue
        for fd, _ in told:
            if fd in self._fds.values():
                # Its handle stays open and silent until the caller no longer names it.
                self._poll.unregister(fd)
        return bool(told)

    def wake(self) -> None:
        """Let the waiting thread look at once. Safe after ``close``."""
        with contextlib.suppress(OSError):
            os.write(self._tell, b"!")

    def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        for known in list(self._fds):
            self._forget(known)
        for end in (self._heard, self._tell):
            with contextlib.suppress(OSError):
                os.close(end)
        self._heard = self._tell = -1

    def _watch(self, process: tuple[int, int]) -> None:
        pid, started = process
        if not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        # The handle pins the process: what is checked now is what will be told of.
        if start_time(pid) != started:
            os.close(fd)
            return
        self._fds[process] = fd
        self._poll.register(fd, select.POLLIN)

    def _forget(self, process: tuple[int, int]) -> None:
        fd = self._fds.pop(process)
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)
        os.close(fd)
