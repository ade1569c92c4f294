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
from a3r.core.presence import Presence
from a3r.core.types import FailureClass
from a3r.worker.gpus import GpuOffice
from a3r.worker.identity import default_slots, inventory, lock_file, worker_lock
from a3r.worker.job import WorkerSettings
from a3r.worker.worker import Worker

logger = logging.getLogger(__name__)

SECOND_SIGNAL_S = 2.0
LOOK_S = 1.0
"""Between two looks whether it may leave."""


class Asked:
    """Counts the signals that ask the worker to end."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.once, self.twice = threading.Event(), threading.Event()

    def signalled(self, _number: int, _frame: FrameType | None) -> None:
        """First: leave. Second: end the attempts too."""
        (self.twice if self.once.is_set() else self.once).set()

    def listen(self) -> None:
        """Take SIGTERM, SIGINT, and SIGUSR2, by which Slurm gives notice (main thread only); a closing terminal is no reason to end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
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
    gpus: GpuOffice | None = None,
    idle_exit_s: float | None = None,
    pool: tuple[str, str] = ("", ""),
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
        gpus: measures the GPUs of this host; None = it offers none.
        idle_exit_s: end after so long without an attempt, as workers of a pool do; None = never.
        pool: the pool that asked for this worker, and its name for the request.

    Raises:
        WorkspaceError: another worker serves this workspace, or it cannot be written.
    """
    with worker_lock(home) as worker_id:
        if asked is None:
            asked = Asked()
            asked.listen()
        settings = _settings(home, worker_id, slots, gpus, pool)
        worker = Worker(settings, hub, terminal, os.environ if environ is None else environ)
        return _work(worker, asked, stop_attempts=stop_attempts, idle_exit_s=idle_exit_s)


def _settings(
    home: Path, worker_id: str, slots: int | None, gpus: GpuOffice | None, pool: tuple[str, str]
) -> WorkerSettings:
    return WorkerSettings(
        home=home,
        worker_id=worker_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        slots=default_slots(gpus) if slots is None else slots,
        inventory=inventory(home, gpus),
        gpus=gpus,
        pool=pool[0],
        pool_job=pool[1],
    )


def _work(
    worker: Worker, asked: Asked, *, stop_attempts: bool, idle_exit_s: float | None = None
) -> bool:
    worker.start()
    settings = worker.settings
    logger.info(
        "worker %s works with %d slots in %s", settings.worker_id, settings.slots, settings.home
    )
    if settings.gpus is not None and (absent := settings.gpus.absent()):
        names = ", ".join(map(str, absent))
        logger.warning("this host shows no GPU %s, which --gpus names: they are not offered", names)
    presence = Presence(lock_file(settings.home))
    while not asked.once.wait(LOOK_S):
        if presence.gone():
            why = f"the workspace {str(settings.home)!r} was deleted under the worker"
            logger.error("%s: leaving", why)
            worker.abandon(why)
            worker.leave()
            return False
        if worker.may_leave():
            logger.info("this worker was removed, and nothing is left to do")
            break
        idle = idle_exit_s is not None and worker.idle_s() > idle_exit_s
        if idle and worker.is_idle_for_good():
            logger.info("nothing to do for %.0f s: leaving", idle_exit_s)
            break
    worker.claim_no_more()
    clean = True
    if worker.settings.pool_job and asked.once.is_set():
        # The cluster wants its machine back; what runs here would be killed, and a new attempt can run elsewhere.
        why = f"the cluster ended the worker of pool {worker.settings.pool!r}"
        clean = worker.stop_attempts(why, failure=FailureClass.SCHEDULER)
    # Else there is time for the second signal of someone who wants the attempts ended.
    elif stop_attempts or (worker.attempts() and asked.twice.wait(SECOND_SIGNAL_S)):
        clean = worker.stop_attempts("the worker was told to end its attempts")
    else:
        logger.info("leaving; attempts go on: %s", ", ".join(worker.attempts()) or "none")
    worker.leave()
    return clean
