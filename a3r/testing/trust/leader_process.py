"""``python -m a3r.testing.trust.leader_process``: a leader that can be killed a hundred times, in processes of its own.

Loads everything once, then for each line on stdin (a workspace) starts a leader by fork, so that a kill meets the leader's work and
not its imports. Prints the leader's pid, and when it has ended, its return code (-9: killed; 0: every campaign is closed).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from importlib import import_module
from pathlib import Path

from a3r.core.clock import SystemClock
from a3r.core.types import CampaignState
from a3r.core.workspace import Workspace
from a3r.leader.reconcile import reconcile
from a3r.store.store import Store

LOOK_S = 0.002
OPEN = frozenset(CampaignState) - {CampaignState.DONE, CampaignState.STOPPED}


def lead(folder: Path) -> int:
    """Reconcile until every campaign is closed; 1 when one of them is blocked."""
    clock, idle = SystemClock(), threading.Event()
    workspace = Workspace(folder)
    with Store.open(workspace.database, clock) as store:
        while True:
            moved = reconcile(store, clock, workspace)
            states = {campaign.state for campaign in store.campaigns()}
            if CampaignState.BLOCKED in states:
                return 1
            if not states & OPEN:
                return 0
            if not moved:
                idle.wait(LOOK_S)


def serve() -> int:
    """One leader after the other, for each line on stdin; a 0 says that everything is loaded."""
    import_module("matplotlib.pyplot")  # the report's drawings take seconds to load
    _say(0)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(lead(Path(line.rstrip("\n"))))
        _say(pid)
        _say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return 0


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    sys.exit(serve())
