"""``a3r daemon``: status and stop. Neither starts a daemon."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, fields, reported, table, workspace

if TYPE_CHECKING:
    from a3r.core.workspace import Workspace

Json = dict[str, Any]

STOP_TIMEOUT_S = 15.0


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("The workspace's daemon; other commands start it when they need it.")
    group.command("status")(status)
    group.command("stop")(stop)
    app.add_typer(group, name="daemon")


def status(as_json: JsonOption = False) -> None:
    """Show whether the daemon runs, where, and which workers it knows.

    Exit codes: 0 it runs, 4 it does not.
    """
    with reported(as_json=as_json):
        from a3r.cli.daemon.starting import find_daemon
        from a3r.core.errors import HubUnreachable

        ws = workspace()
        found = find_daemon(ws)
        if found is None:
            raise HubUnreachable(
                f"No daemon runs for {str(ws.root)!r}.",
                hint="Commands that need it start it; 'a3r campaign list' does.",
            )
        ready, client = found
        with client:
            body = {"running": True, "url": ready.url, **client.get("daemon")}
        emit(body, render(body), as_json=as_json)


def render(body: Json) -> list[str]:
    """The status for people."""
    leader = body["leader"]
    lines = fields(
        [
            ("daemon", f"pid {body['pid']} at {body['url']}"),
            ("workspace", body["workspace"]),
            ("up since", clock_time(body["started_at"])),
            ("leader", _leader_words(leader)),
        ]
    )
    workers = [(w["id"], w["host"], w["slots"], f"{w['silent_s']} s ago") for w in body["workers"]]
    if not workers:
        return [*lines, "no worker has registered yet"]
    return [*lines, "", *table(workers, ("worker", "host", "slots", "last word"))]


def _leader_words(leader: Json) -> str:
    if leader.get("last_error"):
        return f"failing ({leader['failures_in_a_row']} times in a row): {leader['last_error']}"
    return f"well ({leader.get('ticks', 0)} ticks)"


def clock_time(at: float) -> str:
    """Local date and time of a Unix time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def stop(
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="End the local worker process too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """End the daemon in order. Attempts that run go on, and are found again by the next daemon.

    Stopping what does not run is fine. Exit codes: 0 it does not run any more, 1 it does not end.
    """
    with reported(as_json=as_json):
        body = stop_daemon(workspace(), with_worker=with_worker)
        words = ["the daemon has ended" if body["stopped"] else "no daemon was running"]
        if body["worker_ended"]:
            words.append("its worker has ended; attempts go on, and the next worker takes them up")
        if body["worker_pid"]:
            words.append(
                f"its worker (pid {body['worker_pid']}) goes on with what runs; `a3r daemon stop --with-worker` ends it too"
            )
        emit(body, words, as_json=as_json)


def stop_daemon(ws: Workspace, *, with_worker: bool) -> Json:
    """Ask the daemon to end and wait for it; one that holds the lock but does not answer gets SIGTERM."""
    from a3r.cli.daemon.local_worker import end_worker, worker_pid
    from a3r.cli.daemon.lock import holder, is_locked
    from a3r.cli.daemon.starting import find_daemon
    from a3r.core.errors import HostError

    was_running = is_locked(ws.daemon)
    found = find_daemon(ws) if was_running else None
    if found is not None:
        with found[1] as client:
            client.post("shutdown")
    elif was_running and (pid := holder(ws.daemon)) is not None:
        # The lock is held at this very moment and names its holder: the pid is the daemon's.
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_locked(ws.daemon):
        if time.monotonic() > deadline:
            raise HostError(
                f"The daemon does not end (pid {holder(ws.daemon)}).",
                hint="See .a3r/daemon/daemon.log; 'kill -9' of that pid harms nothing.",
            )
        time.sleep(0.05)
    ended = end_worker(ws) if with_worker else False
    return {"stopped": was_running, "worker_ended": ended, "worker_pid": worker_pid(ws)}
