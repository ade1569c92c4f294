"""Runs the checks one after the other, each in processes of its own and within its time, and keeps the report up to date.

The report is written before and after every check: whatever ends the program, what is in it is what was seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarm.server.engine_verl.nonces import NONCE
from swarm.server.engine_verl.reaping import reap_processes
from swarm.testing.gpu_check.cases import Case
from swarm.testing.gpu_check.probe import COMPOSE_ONLY
from swarm.testing.gpu_check.report import Outcome, as_json, as_markdown

LEAST_S = 15.0
"""With less time than this a check is not begun."""
LAST_LINES = 4


@dataclass
class Runner:
    """One go through the checks. ``limit_s`` bounds all of it: a check gets its own time, or what is left."""

    folder: Path
    """Of the report."""
    machine: Mapping[str, Any]
    limit_s: float
    rehearsal: bool = False
    """On the CPU, to try the checks themselves: the report says so."""
    slower: float = 1.0
    """Times the time of each check: a slow machine, a large model."""
    model: str = "builtin:tiny-calc"
    command: Callable[[str, str, str], Sequence[str]] = field(default=lambda *told: _probe(*told))
    """The program that plays a check (its name, a model, a scratch folder) and prints its findings."""
    clock: Callable[[], float] = time.monotonic
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def run(self, cases: Sequence[Case], skipped: Sequence[tuple[Case, str]]) -> dict[str, Any]:
        """Run the cases in order; returns the report's record."""
        until = self.clock() + self.limit_s
        never = [Outcome(case.name, case.says, "skipped", 0.0, why) for case, why in skipped]
        for index, case in enumerate(cases):
            left = [Outcome(c.name, c.says, "not run", 0.0) for c in cases[index + 1 :]]
            unfinished = Outcome(case.name, case.says, "cut off", 0.0, "gpu-check was ended")
            self._write([*self.outcomes, unfinished, *left, *never])
            self.outcomes.append(self._outcome(case, until - self.clock()))
        self.outcomes += never
        return self._write(self.outcomes)

    def _write(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        record = as_json(outcomes, self.machine, rehearsal=self.rehearsal)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("gpu-check.json", json.dumps(record, indent=2) + "\n"),
            ("gpu-check.md", as_markdown(record)),
        ):
            scratch = self.folder / f".{name}"
            scratch.write_text(text, "utf-8")
            scratch.replace(self.folder / name)
        return record

    def _outcome(self, case: Case, left_s: float) -> Outcome:
        if left_s < LEAST_S:
            return Outcome(case.name, case.says, "skipped", 0.0, "no time was left")
        print(f"gpu-check: {case.name} ...", file=sys.stderr, flush=True)  # noqa: T201
        began, nonce = self.clock(), f"gpu-check-{os.getpid()}-{case.name}"
        limit_s = min(case.timeout_s * self.slower, left_s)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            command = self.command(case.name, self.model, folder)
            try:
                out, errors, late = _played(command, self._environment(case, nonce), limit_s)
            finally:
                # Also when gpu-check itself is ended: what went into a session of its own (Ray's) outlives ours.
                reap_processes(nonce)
        seconds = self.clock() - began
        if late:
            detail = f"not done in {limit_s:.0f} s; {_last(errors)}"
            return Outcome(case.name, case.says, "timeout", seconds, detail)
        return _judged(case, out, errors, seconds)

    def _environment(self, case: Case, nonce: str) -> dict[str, str]:
        chosen = {NONCE: nonce}
        if self.rehearsal:
            chosen["CUDA_VISIBLE_DEVICES"] = ""
            chosen |= {COMPOSE_ONLY: "1"} if case.gpu_only else {}
        return {**os.environ, **chosen}


def _played(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float
) -> tuple[str, str, bool]:
    """What a program wrote on stdout and stderr, and whether it was ended for its time; nothing of its session stays."""
    # Files, not pipes: an engine's process that outlives the check would hold these open.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=errors,
            # It ends with us when this is closed.
            stdin=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        late = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        out.seek(0)
        errors.seek(0)
        return out.read(), errors.read(), late


def _judged(case: Case, out: str, errors: str, seconds: float) -> Outcome:
    try:
        findings: list[dict[str, Any]] = json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return Outcome(case.name, case.says, "failed", seconds, _last(errors) or "it said nothing")
    bad = [finding["name"] for finding in findings if not finding["ok"]]
    told = ", ".join(bad) or "; ".join(f["detail"] for f in findings if f["detail"])
    return Outcome(case.name, case.says, "failed" if bad else "ok", seconds, told, findings)


def _last(text: str) -> str:
    return " ".join(text.strip().splitlines()[-LAST_LINES:])


def _probe(name: str, model: str, folder: str) -> list[str]:
    return [sys.executable, "-m", "swarm.testing.gpu_check.probe", name, model, folder]
