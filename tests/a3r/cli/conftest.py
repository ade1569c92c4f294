"""The command line in this process, and a workspace at an awkward path with a real daemon that is ended again."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from a3r.cli import main
from a3r.core.workspace import Workspace
from a3r.testing.waiting import retry_until

GOAL = """---
name: tiny
question: {kind: minimum, factor: train_batch_size}
task: calculator
model: builtin:tiny-calc
factors:
  train_batch_size: {levels: [1, 2]}
metric: {name: held_out_reward, direction: maximize, items: 10}
settings: {group_size: 2, steps: 2}
seeds: {coarse: 1, refine: 1, replicate: 2}
pilot: a test
---
# tiny
"""


@dataclass
class Result:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout; fails when there is more or less than one."""
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def a3r(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``a3r ARGS`` here."""

    def run(*args: str) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(list(args))
        out, err = capsys.readouterr()
        code = left.value.code
        return Result(0 if code is None else int(code), out, err)

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a space and non-ASCII letters to stand in; a daemon that was started there is ended."""
    folder = tmp_path / "mein Wörk ☕"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("A3R_HOME", raising=False)
    monkeypatch.setenv("A3R_SLOTS", "0")
    monkeypatch.setenv("A3R_TMUX", "false")
    yield folder
    end_daemon(Workspace(folder / ".a3r"))


@pytest.fixture
def end_daemons() -> Callable[[Workspace], None]:
    """What ends the daemons of a test."""
    return end_daemon


@pytest.fixture
def workspace(project: Path) -> Workspace:
    """The workspace of ``project``."""
    return Workspace.create(project / ".a3r")


@pytest.fixture
def goal(project: Path) -> Path:
    """A goal without mistakes."""
    path = project / "goal.md"
    path.write_text(GOAL, "utf-8")
    return path


def end_daemon(workspace: Workspace) -> None:
    """Kill every daemon of this workspace, also one that was started at the same time and still waits for the lock."""
    for process in daemons_of(workspace):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    retry_until(lambda: not daemons_of(workspace))


def daemons_of(workspace: Workspace) -> list[psutil.Process]:
    """The processes that were started as the daemon of this workspace, whose path is this test's own."""
    wanted = ["-m", "a3r.cli.daemon", "--workspace", str(workspace.root)]
    found = [p for p in psutil.process_iter(["cmdline", "status"]) if p.pid != os.getpid()]
    return [
        p
        for p in found
        if (p.info["cmdline"] or [])[1:5] == wanted and p.info["status"] != psutil.STATUS_ZOMBIE
    ]


def in_a_process(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m a3r ARGS``."""
    return subprocess.run(
        [sys.executable, "-m", "a3r", *args], cwd=cwd, capture_output=True, text=True, check=False
    )
