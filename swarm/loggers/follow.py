"""Follow a server step by step and hand each record to a logger, once, over restarts of either."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from swarm.client import SwarmClient, calls
from swarm.client.calls import Call
from swarm.loggers.scalars import safe_name, scalars
from swarm.loggers.sink import LoggerName, RunOptions, Sink, failed, open_sink
from swarm.protocol.config import TrainConfig
from swarm.protocol.effects import flat
from swarm.protocol.errors import ServerUnreachable
from swarm.protocol.messages import Status
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import EngineState

T = TypeVar("T")
Opener = Callable[[LoggerName, RunOptions], Sink]

log = logging.getLogger(__name__)

HOLD_S = 20.0
"""One held request for the next step."""
AWAY_S = 2.0
"""Pause before a server that does not answer, or has no run yet, is asked again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to follow, and how far."""

    logger: LoggerName
    project: str
    folder: Path
    offline: bool = False
    uri: str = ""
    once: bool = False
    """Write what there is and end; else go on until training is complete."""
    hold_s: float = HOLD_S


@dataclass(slots=True)
class Followed:
    """What was done."""

    run_id: str = ""
    written: int = 0
    last_step: int = 0


def follow(
    client: SwarmClient,
    plan: Plan,
    *,
    opener: Opener = open_sink,
    pause: Callable[[float], None] = time.sleep,
) -> Followed:
    """Write every step that the logger does not have yet, then each new one; returns at the end of training (or ``once``).

    A new run of the server is a new run of the logger. A server that answered once is waited for when it goes away.

    Raises:
        ServerUnreachable: The first request got no answer.
        ConfigError: The logger's library is missing, or the folder cannot be written.
        LoggerFailed: The logger refused.
    """
    status, done = client.status(), Followed()
    server = _Patient(client, pause)
    while True:
        if status.policy_version is not None:
            done = _follow_run(server, plan, status, done.written, opener)
        elif not plan.once:
            pause(AWAY_S)
        status = server.status()
        if plan.once or _is_over(status, done):
            return done


class _Patient:
    """The server's answers; one that is away is asked again until it is back."""

    def __init__(self, client: SwarmClient, pause: Callable[[float], None]) -> None:
        self._client = client
        self._pause = pause

    def _ask(self, call: Call[T]) -> T:
        while True:
            try:
                return self._client.send(call)
            except ServerUnreachable as error:
                log.warning("%s Asking again.", error.message)
                self._pause(AWAY_S)

    def status(self, after_step: int | None = None, hold_s: float = 0.0) -> Status:
        return self._ask(calls.status(after_step, hold_s))

    def config(self) -> TrainConfig:
        return self._ask(calls.read_config())

    def metrics(self, after_step: int) -> list[StepMetrics]:
        return self._ask(calls.metrics(after_step))


def _is_of(status: Status, run_id: str) -> bool:
    version = status.policy_version
    return version is not None and run_id.endswith(f"-{version.incarnation}")


def _is_over(status: Status, done: Followed) -> bool:
    """Whether the run is complete and all of it is written."""
    complete = status.state is EngineState.TRAINED and status.step <= done.last_step
    return complete and _is_of(status, done.run_id)


def run_id_of(config: TrainConfig, status: Status) -> str:
    """Return the logger's name of the server's present run."""
    incarnation = status.policy_version.incarnation if status.policy_version else "none"
    return f"{safe_name(config.run_name)}-{incarnation}"


def _follow_run(
    server: _Patient, plan: Plan, status: Status, written: int, opener: Opener
) -> Followed:
    """Follow one run until it is complete or another one began; ``written`` is what other runs had."""
    config = server.config()
    options = RunOptions(
        run_id=run_id_of(config, status),
        project=plan.project,
        folder=plan.folder,
        offline=plan.offline,
        uri=plan.uri,
        config=flat_config(config),
    )
    with _opened(plan.logger, options, opener) as sink:
        done = Followed(options.run_id, written, sink.last_step())
        while True:
            new = server.metrics(done.last_step)
            status = server.status()  # asked after them: if it is of this run, so are they
            if not _is_of(status, done.run_id):
                return done
            _write(new, plan, sink, done)
            if plan.once or _is_over(status, done):
                return done
            server.status(done.last_step, plan.hold_s)


def _write(new: list[StepMetrics], plan: Plan, sink: Sink, done: Followed) -> None:
    for metrics in new:
        try:
            sink.write(metrics.step, scalars(metrics), metrics.finished_at)
        except Exception as error:
            raise failed(plan.logger, f"write step {metrics.step}", error) from error
        done.last_step, done.written = metrics.step, done.written + 1
        log.info("step %d written to %s", metrics.step, plan.logger.value)


@contextmanager
def _opened(name: LoggerName, options: RunOptions, opener: Opener) -> Generator[Sink]:
    sink = opener(name, options)
    try:
        yield sink
    finally:
        try:
            sink.close()
        except Exception as error:
            raise failed(name, "end the run", error) from error


def flat_config(config: TrainConfig) -> dict[str, str | float | bool]:
    """Return the configuration with dotted keys; what is no number, text or truth value is its text."""
    return {
        key: value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in flat(config).items()
    }
