"""A disk that takes nothing more: one can still look, and stop what fills it, while the daemon runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from a3r.cli.daemon.lock import daemon_lock
from a3r.core.workspace import Workspace

# A limit of zero bytes a file stands for the disk: every write fails, every read goes on.
CODE = """
import resource, signal
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from a3r.cli.edge import workspace
from a3r.core.errors import WorkspaceError
try:
    print("found", workspace().root.name)
except WorkspaceError as error:
    print("refused", error.message)
"""


def asked(root: Path) -> str:
    env = {**os.environ, "A3R_HOME": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.timeout(90)
def test_on_a_full_disk_a_running_daemon_can_still_be_asked(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / ".a3r")
    with daemon_lock(workspace.daemon):
        assert asked(workspace.root) == "found .a3r\n"
    assert asked(workspace.root).startswith("refused The workspace")
