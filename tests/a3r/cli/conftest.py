"""The command line in this process, and a workspace at an awkward path with a real daemon that is ended again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from a3r.cli import main
from a3r.cli.daemon.lock import holder, is_locked
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
    """Kill the daemon that holds the lock, if any, and wait until it is gone."""
    pid = holder(workspace.daemon)
    if pid is not None and is_locked(workspace.daemon):
        os.kill(pid, signal.SIGKILL)
        retry_until(lambda: not is_locked(workspace.daemon))


def in_a_process(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m a3r ARGS``."""
    return subprocess.run(
        [sys.executable, "-m", "a3r", *args], cwd=cwd, capture_output=True, text=True, check=False
    )
