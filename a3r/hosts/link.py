"""The daemon's link to one host: an ssh process that leads the host's worker to the hub and keeps that worker alive.

Owned by a loop that calls ``look`` again and again; nothing here waits. The far side heeds that its stdin ends, so a daemon
that is killed leaves no ssh behind; the worker stays and waits for the next daemon.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from a3r.adapters.ssh import SSH_FAILED, Ssh
from a3r.adapters.ssh_errors import last_line, refusal
from a3r.core.ports import Clock
from a3r.core.types import LinkState
from a3r.hosts.calling import NO_PYTHON, answers, command, program
from a3r.hosts.options import HostOptions

logger = logging.getLogger(__name__)

Json = dict[str, Any]

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
MAKE_S = 60.0
"""A link that is not up by then is given up and tried anew."""
MOST_ERROR = 4000


@dataclass(frozen=True)
class Wanted:
    """What the link is for; another one takes its place when any of it changes."""

    name: str
    address: str
    options: HostOptions
    work: bool
    """Whether the host shall have a worker; without, one that leaves is only told of."""


class Link:
    """``state`` and ``words`` say how it is; ``worker`` what the host last said of its worker (empty: nothing yet)."""

    def __init__(self, wanted: Wanted, ssh: Ssh, hub_port: int, clock: Clock) -> None:
        """``hub_port``: on this machine's loopback, where the host's worker shall come in."""
        self.wanted = wanted
        self.state = LinkState.WAITING
        self.worker: Json = {}
        self._ssh, self._hub_port, self._clock = ssh, hub_port, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = self._not_before = clock.monotonic()
        self._backoff_s = FIRST_BACKOFF_S
        self._out = self._err = b""
        self._why: str = ""

    @property
    def words(self) -> str:
        """What a person should know; empty when all is well."""
        if self.state is LinkState.BROKEN:
            wait_s = max(0.0, self._not_before - self._clock.monotonic())
            return f"{self._why} (tried again{' soon' if wait_s < 5 else ' within a minute'})"
        if self.state is LinkState.UP and self.worker and not self.worker["alive"]:
            if not self.worker.get("wanted"):
                return "no worker"
            note = last_line(str(self.worker.get("note", "")))
            return f"its worker starts{': the last one said: ' + note if note else ''}"
        return ""

    @property
    def left(self) -> bool:
        """Whether the host has said that no worker is there."""
        return self.state is LinkState.UP and bool(self.worker) and not self.worker["alive"]

    def look(self) -> None:
        """Start or restart the process, read what the host says. Never raises for the host's faults."""
        now = self._clock.monotonic()
        if self._process is None:
            if now >= self._not_before:
                self._start(now)
            return
        self._read(self._process)
        code = self._process.poll()
        if code is not None:
            self._broken(self._reason(code), now)
        elif self.state is not LinkState.UP and now - self._started_at > MAKE_S:
            self._broken(f"no connection within {MAKE_S:.0f} s", now)
        elif self.state is LinkState.UP and now - self._started_at > MAX_BACKOFF_S:
            self._backoff_s = FIRST_BACKOFF_S

    def close(self) -> None:
        """Hang up; the worker stays. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        # Hanging up is enough on a link that works; the signal is for one that does not.
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)

    def _start(self, now: float) -> None:
        options = self.wanted.options
        spec = options.keep_spec(self.wanted.name, work=self.wanted.work)
        through_us = not options.hub_url
        spec["socket"] = f"{options.folder}/link-{secrets.token_hex(4)}.sock" if through_us else ""
        self._started_at, self._out, self._err, self.worker = now, b"", b"", {}
        try:
            process = self._ssh.link(command(options.python), str(spec["socket"]), self._hub_port)
        except OSError as error:
            self._broken(f"ssh does not start: {error.strerror}", now)
            return
        self._process = process
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        # Shorter than a pipe holds, so this does not wait for the far side.
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.write(program("keep", spec))

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        self._err = (self._err + _available(process.stderr))[-MOST_ERROR:]
        *lines, self._out = (self._out + _available(process.stdout)).split(b"\n")
        for answer in answers(lines):
            if answer.get("event") == "up":
                logger.info("The link to host %s is up.", self.wanted.name)
                self.state = LinkState.UP
            elif answer.get("event") == "worker":
                self.worker = {**answer, "note": answer.get("note") or self.worker.get("note", "")}
            elif answer.get("ok") is False:
                self._why = str(answer.get("error", ""))

    def _reason(self, code: int) -> str:
        said = self._err.decode("utf-8", "replace")
        if code == SSH_FAILED:
            return refusal(self.wanted.address, said).message
        if code == NO_PYTHON:
            return f"{self.wanted.options.python!r} is gone from the host"
        return self._why or last_line(said) or f"the host hung up (exit code {code})"

    def _broken(self, why: str, now: float) -> None:
        self.close()
        if self.state is not LinkState.BROKEN or why != self._why:
            logger.warning("The link to host %s: %s.", self.wanted.name, why.rstrip("."))
        self.state, self._why = LinkState.BROKEN, why
        self._not_before = now + self._backoff_s
        self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s)


def _available(pipe: IO[bytes] | None) -> bytes:
    """What lies in the pipe now."""
    found = b""
    with suppress(OSError):
        while pipe is not None and (part := pipe.read(65_536)):
            found += part
    return found
