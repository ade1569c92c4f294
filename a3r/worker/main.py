"""``a3r worker start``: one worker of a workspace, from its lock to its end. The command line calls ``run_worker``."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from a3r.core.ports import Hub, Terminal
from a3r.worker.identity import inventory, usable_cpus, worker_lock
from a3r.worker.job import WorkerSettings
from a3r.worker.worker import Worker

logger = logging.getLogger(__name__)

SECOND_SIGNAL_S = 2.0


class Asked:
    """Counts the signals that ask the worker to end."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.once, self.twice = threading.Event(), threading.Event()

    def signalled(self, _number: int, _frame: FrameType | None) -> None:
        """First: leave. Second: end the attempts too."""
        (self.twice if self.once.is_set() else self.once).set()

    def listen(self) -> None:
        """Take SIGTERM and SIGINT (main thread only); a closing terminal is no reason to end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.signalled)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def run_worker(
    hub: Hub,
    home: Path,
    *,
    slots: int | None = None,
    terminal: Terminal | None = None,
    environ: Mapping[str, str] | None = None,
    stop_attempts: bool = False,
    asked: Asked | None = None,
) -> bool:
    """Work until asked to end; returns whether everything that should have ended has.

    The first SIGTERM or SIGINT leaves attempts running, to be taken up by the next worker; a second one ends them.

    Args:
        hub: where work comes from.
        home: the ``.a3r`` folder.
        slots: attempts at once; None = the number of usable cores.
        terminal: where processes can be looked at; None = nowhere.
        environ: processes get a few names of it; None = this process's.
        stop_attempts: end the attempts at the first signal.
        asked: what asks for the end; None = signals.

    Raises:
        WorkspaceError: another worker serves this workspace, or it cannot be written.
    """
    with worker_lock(home) as worker_id:
        if asked is None:
            asked = Asked()
            asked.listen()
        settings = WorkerSettings(
            home=home,
            worker_id=worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=usable_cpus() if slots is None else slots,
            inventory=inventory(),
        )
        worker = Worker(settings, hub, terminal, os.environ if environ is None else environ)
        return _work(worker, asked, stop_attempts=stop_attempts)


def _work(worker: Worker, asked: Asked, *, stop_attempts: bool) -> bool:
    worker.start()
    settings = worker.settings
    logger.info(
        "worker %s works with %d slots in %s", settings.worker_id, settings.slots, settings.home
    )
    asked.once.wait()
    worker.claim_no_more()
    clean = True
    # Time for the second signal of someone who wants the attempts ended.
    if stop_attempts or (worker.attempts() and asked.twice.wait(SECOND_SIGNAL_S)):
        clean = worker.stop_attempts("the worker was told to end its attempts")
    else:
        logger.info("leaving; attempts go on: %s", ", ".join(worker.attempts()) or "none")
    worker.leave()
    return clean
