"""The daemon: hub, leader and lease clock of one workspace in one process. All of its truth is in the database.

Wiring only: what each part does is written in ``a3r.hub``, ``a3r.leader`` and ``a3r.store``.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from a3r.cli.daemon.door import Door, door_of
from a3r.cli.daemon.language_model import models_of
from a3r.cli.daemon.local_worker import LocalWorker
from a3r.cli.daemon.lock import LOCK_FILE, daemon_lock
from a3r.cli.daemon.pools import PoolThread
from a3r.cli.daemon.serving import HubServer
from a3r.cli.daemon.starting import FAILURE_FILE
from a3r.cli.daemon.ticking import Ticker
from a3r.cli.daemon.window import show
from a3r.cli.terminal import terminal_or_none
from a3r.core.clock import SystemClock
from a3r.core.errors import A3RError, Conflict
from a3r.core.ports import Clock
from a3r.core.presence import Presence
from a3r.core.settings import Settings, resolve_settings
from a3r.core.workspace import Workspace
from a3r.hosts.links import Links
from a3r.hosts.options import known_hosts
from a3r.hub import leases
from a3r.hub.app import create_app
from a3r.hub.ready import READY_FILE, ReadyRecord, read_ready
from a3r.hub.settings import HubSettings
from a3r.hub.state import Hooks, ReadGoal
from a3r.hub.tokens import HubTokens
from a3r.leader.firing import fire_due
from a3r.leader.jobs import JobRunner, JobThreads
from a3r.store.store import Store

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
SWITCH_S = 0.001
"""How long a thread may keep the interpreter when others wait. The one that holds the database's writer is often among them: at
Python's 5 ms, hundreds of workers would wait for turns and not for work."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

SCHEDULES_S = 5.0
"""How often schedules are looked at."""

Reconcile = Callable[[Store, Clock, Workspace], bool]


def run(
    folder: Path,
    *,
    local_worker: bool = True,
    window: bool = True,
    reconcile: Reconcile | None = None,
) -> int:
    """Run the daemon of the workspace ``folder`` until SIGTERM, SIGINT or a shutdown request; return the exit code.

    Args:
        folder: The ``.a3r`` folder; made when it is missing.
        local_worker: Keep a worker on this host.
        window: Show the log in a tmux window, where there is tmux.
        reconcile: The leader's tick; default the real leader.
    """
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    sys.setswitchinterval(SWITCH_S)
    for noisy in ("apscheduler", "matplotlib", "urllib3", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        workspace = Workspace.create(folder)
        settings = resolve_settings(env=os.environ, file=workspace.config)
        logging.getLogger().setLevel(settings.log_level)
        with daemon_lock(workspace.daemon):
            if window and settings.tmux and (terminal := terminal_or_none()) is not None:
                show(workspace, terminal)
            # No slots: this host shall run nothing, so it needs no worker.
            wanted = local_worker and settings.slots != 0
            _serve(workspace, settings, reconcile or leader_tick, local_worker=wanted)
    except A3RError as error:
        if not isinstance(error, Conflict):
            # Nobody who is refused because a daemon runs waits for a reason.
            _leave_reason(folder, error)
        logger.error("%s", error)  # noqa: TRY400 - an expected failure, told in words
        return error.exit_code
    return 0


def leader_tick(store: Store, clock: Clock, workspace: Workspace) -> bool:
    """One look of the real leader at every campaign."""
    from a3r.leader.reconcile import reconcile

    return reconcile(store, clock, workspace)


def job_threads(store: Store, clock: Clock, workspace: Workspace, settings: Settings) -> JobThreads:
    """Who does the leader's long work, with the language model of the settings."""
    from a3r.adapters.web_page import read_page
    from a3r.leader.handlers import leader_handlers

    model, fallbacks = models_of(settings, os.environ)
    runner = JobRunner(store, clock, workspace, model, leader_handlers(), fallbacks, read_page)
    return JobThreads(runner)


def read_goal(text: str, folder: str, *, with_model: bool = False) -> ReadGoal:
    """What the hub files of a goal; one in prose is filed without a spec, and a job of the leader reads it."""
    from a3r.leader.understanding.prose import filed

    found = filed(text, Path(folder) / "goal.md", with_model=with_model)
    return ReadGoal(name=found.name, spec=found.spec, review=found.review, planner=found.planner)


def _serve(
    workspace: Workspace, given: Settings, reconcile: Reconcile, *, local_worker: bool
) -> None:
    clock = SystemClock()
    tokens = HubTokens.load_or_mint(workspace.daemon)
    settings = HubSettings(
        workspace=workspace.root,
        epoch=secrets.token_hex(16),
        started_at=clock.time(),
        heartbeat_s=given.heartbeat_s,
        lease_s=given.lease_s,
        lost_after_s=given.lost_after_s,
    )
    door = door_of(given)
    store = Store.open(workspace.database, clock)
    sock = listen(workspace)
    # The end of every link: a worker that comes through one is from outside, though it arrives on loopback.
    doors = [Door(HOST, 0, None, None), *([door] if door is not None else [])]
    outside = [one.listen() for one in doors]
    links = Links(store, clock, known_hosts(workspace), outside[0].getsockname()[1])
    try:
        worker = LocalWorker(workspace, clock) if local_worker else None

        def work() -> bool:
            moved = leases.expire(store, settings, clock.time())
            return reconcile(store, clock, workspace) or moved > 0

        # Heartbeats and log bytes are writes too, but nothing that the leader could act upon.
        ticker = Ticker(work, store.last_event_seq, clock, given.tick_s)
        jobs = job_threads(store, clock, workspace, given)
        reader = partial(read_goal, with_model=jobs.with_model)
        ticker.also(lambda: fire_due(store, clock, reader), SCHEDULES_S)
        ticker.also(links.tend)
        server = HubServer(sock, tuple(zip(doors, outside, strict=True)))
        ticker.also(partial(_leave_when_gone, Presence(workspace.daemon / LOCK_FILE), server))
        pools = PoolThread(store, clock, workspace.root, given.pools_s, door)
        _run_server(workspace, store, tokens, settings, server, sock, ticker, worker, jobs, pools)
    finally:
        links.close()
        for one in (sock, *outside):
            one.close()
        store.close()


def _leave_when_gone(presence: Presence, server: HubServer) -> bool:
    """A daemon whose workspace was deleted would serve what nobody can find again."""
    if not presence.gone():
        return False
    logger.error("The workspace was deleted under the daemon (%s): ending.", presence.path)
    server.stop()
    return True


def _ready(port: int, settings: HubSettings) -> ReadyRecord:
    return ReadyRecord(
        url=f"http://{HOST}:{port}",
        port=port,
        pid=os.getpid(),
        epoch=settings.epoch,
        started_at=settings.started_at,
    )


def _run_server(
    workspace: Workspace,
    store: Store,
    tokens: HubTokens,
    settings: HubSettings,
    server: HubServer,
    sock: socket.socket,
    ticker: Ticker,
    worker: LocalWorker | None,
    jobs: JobThreads,
    pools: PoolThread,
) -> None:
    hooks = Hooks(
        read_goal=partial(read_goal, with_model=jobs.with_model),
        on_shutdown=server.stop,
        check_pool=pools.check,
        leader_report=ticker.report,
    )
    app = create_app(store, tokens, settings, hooks)
    ready = _ready(sock.getsockname()[1], settings)

    def on_listening() -> None:
        ready.write(workspace.daemon)
        logger.info("Listening on %s for workspace %s.", ready.url, workspace.root)
        jobs.start()
        pools.start(app.state.hub.heard, ready.url)
        ticker.start()
        if worker is not None:
            ticker.also(worker.tend)

    try:
        server.run(app, on_listening, before_close=app.state.hub.close)
    finally:
        jobs.stop()
        pools.stop()
        ticker.stop()
        _withdraw(workspace, settings.epoch)
        logger.info("Ended; workers and attempts go on.")


def listen(workspace: Workspace) -> socket.socket:
    """Return a listening socket: on the former daemon's port if that is free, so that remote workers find us again, else on any."""
    former = read_ready(workspace.daemon)
    # asyncio sends without delay only on sockets that say that they are TCP; every answer would come 40 ms late.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, former.port if former else 0))
    except OSError:
        sock.bind((HOST, 0))
    sock.listen(256)
    sock.setblocking(False)
    return sock


def _withdraw(workspace: Workspace, epoch: str) -> None:
    """Mark the record as over. The port stays in it: the next daemon tries to get the same one."""
    ready = read_ready(workspace.daemon)
    if ready is not None and ready.epoch == epoch:
        ready.model_copy(update={"pid": 0}).write(workspace.daemon)
    elif ready is None:
        (workspace.daemon / READY_FILE).unlink(missing_ok=True)


def _leave_reason(folder: Path, error: A3RError) -> None:
    """Tell whoever started us why we do not run; a read-only folder keeps it to the log."""
    try:
        (folder / "daemon" / FAILURE_FILE).write_text(
            json.dumps(error.envelope(), default=str), encoding="utf-8"
        )
    except OSError:
        logger.warning("The reason could not be written beside the log.")
