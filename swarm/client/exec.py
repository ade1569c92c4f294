"""Run any program as one episode: it finds the model through environment variables and leaves a reward behind."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import orjson

from swarm.client.client import SwarmClient
from swarm.client.errors import ProgramNotStarted
from swarm.protocol.episodes import FinishReply
from swarm.protocol.errors import RewardError
from swarm.protocol.states import EpisodeKind


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """One program to run in one episode."""

    command: Sequence[str]
    task_id: str
    task_set: str = "default"
    kind: EpisodeKind = EpisodeKind.TRAIN
    environ: Mapping[str, str] | None = None
    """The environment to extend; None = an empty one."""
    reward_file: Path | None = None
    """Where the program writes its reward; None = the last line of its stdout."""
    timeout_s: float | None = None
    """Seconds for the program; None = the episode's own deadlines only."""
    grant_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What became of the episode and the program."""

    episode_id: str
    returncode: int
    """Of the program; negative = ended by that signal."""
    timed_out: bool = False
    reward: float | None = None
    metrics: Mapping[str, float] | None = None
    reply: FinishReply | None = None
    """The server's answer to finish; None = the episode was aborted."""
    problem: str = ""
    """Why it was aborted; empty = it was finished."""


def run_program(client: SwarmClient, request: ExecRequest, output: IO[bytes]) -> ExecResult:
    """Take an episode, run the program in it, finish with its reward; the program's stdout goes to ``output`` as it comes.

    A program that fails, is stopped by ``timeout_s`` or leaves no reward (train) aborts its episode.

    Raises:
        SwarmError: no episode was granted, or the server could not be reached.
        ProgramNotStarted: the program cannot be started.
    """
    with client.episode(
        request.task_id,
        task_set=request.task_set,
        kind=request.kind,
        grant_timeout_s=request.grant_timeout_s,
    ) as episode:
        environ = {
            **(request.environ or {}),
            **episode.environ(),
            "SWARM_TASK_ID": request.task_id,
            "SWARM_EPISODE_ID": episode.id,
        }
        returncode, last_line, timed_out = _run(request, environ, output)
        if returncode != 0 or timed_out:
            how = "was stopped by --timeout-s" if timed_out else f"ended with {returncode}"
            problem = f"the program {how}"
            episode.abort(problem)
            return ExecResult(episode.id, returncode, timed_out, problem=problem)
        try:
            reward, metrics = _reward(request, last_line)
        except RewardError as error:
            episode.abort(error.message)
            return ExecResult(episode.id, returncode, problem=error.message)
        reply = episode.finish(reward, metrics)
        return ExecResult(episode.id, returncode, reward=reward, metrics=metrics, reply=reply)


def _run(
    request: ExecRequest, environ: Mapping[str, str], output: IO[bytes]
) -> tuple[int, bytes, bool]:
    """Return code, last non-empty line of stdout, and whether the time ran out."""
    timer: threading.Timer | None = None
    timed_out: list[bool] = []
    try:
        process = subprocess.Popen(
            request.command,
            stdout=subprocess.PIPE,
            env=environ,
            # Stopped as a whole: what it started would keep its stdout open. Without a time limit it keeps the terminal.
            start_new_session=request.timeout_s is not None,
        )
    except OSError as error:
        raise ProgramNotStarted(
            f"The program {request.command[0]!r} cannot be started: {error.strerror}.",
            hint="Give a program that is on PATH or a path to it, after `--`.",
        ) from error
    with process:
        assert process.stdout is not None
        if request.timeout_s is not None:
            timer = _stop_after(request.timeout_s, process, timed_out)
        last = b""
        try:
            for line in process.stdout:
                output.write(line)
                output.flush()
                last = line if line.strip() else last
            process.wait()
        except BaseException:
            _kill(process, whole=request.timeout_s is not None)
            raise
        finally:
            if timer is not None:
                timer.cancel()
    return process.returncode, last, bool(timed_out)


def _stop_after(
    seconds: float, process: subprocess.Popen[bytes], note: list[bool]
) -> threading.Timer:
    def stop() -> None:
        note.append(True)
        _kill(process, whole=True)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    return timer


def _kill(process: subprocess.Popen[bytes], *, whole: bool) -> None:
    """Kill the program; ``whole``: with all that it started in its session (where there are sessions)."""
    if whole and os.name == "posix":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _reward(request: ExecRequest, last_line: bytes) -> tuple[float | None, dict[str, float]]:
    """Reward and metrics that the program left; no reward is fine for an eval episode only."""
    where = "the last line of its stdout"
    raw = last_line
    if request.reward_file is not None:
        where = str(request.reward_file)
        try:
            raw = request.reward_file.read_bytes()
        except OSError as error:
            raise RewardError(
                f"The program left no reward in {where!r}: {error.strerror}."
            ) from error
    found = read_reward(raw)
    if found is not None:
        return found
    if request.kind is EpisodeKind.EVAL:
        return None, {}
    raise RewardError(
        f"The program left no reward in {where}.",
        hint='End its stdout with a line like {"reward": 1.0}, or use --reward-file.',
    )


def read_reward(raw: bytes) -> tuple[float, dict[str, float]] | None:
    """Read ``{"reward": r}`` or ``{"reward": r, "metrics": {...}}`` (a bare number too); None when it is something else.

    Raises:
        RewardError: the reward or a metric is not a finite number.
    """
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    document = cast("dict[str, Any]", value) if isinstance(value, dict) else {"reward": value}
    if "reward" not in document:
        return None
    metrics: Any = document.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise RewardError(
            f"The program's metrics are {metrics!r}.", hint="Write an object of numbers."
        )
    named = {str(k): _finite(v, str(k)) for k, v in cast("dict[Any, Any]", metrics).items()}
    return _finite(document["reward"], "reward"), named


def _finite(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RewardError(f"The program's {name!r} is {value!r}.", hint="Write a finite number.")
    return float(value)
