"""``a3r run``: list show logs trace attach retry cancel."""

from __future__ import annotations

import base64
import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, hub, printable, reported, say, table
from a3r.cli.run_remote import attempt_of, remote_pages, trace
from a3r.core.errors import HostError, NotFound

if TYPE_CHECKING:
    from a3r.hub.client import HubClient

Json = dict[str, Any]

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Id, part of an id, label ('s1-b16 seed 3'), or blueprint with one run."
    ),
]
OVER = ("succeeded", "failed", "cancelled")
FOLLOW_S = 0.5
REASON_LENGTH = 80
CHUNK = 1 << 18
TAIL = 20_000


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("Single runs: a blueprint with one seed.")
    group.command("list")(list_runs)
    group.command("show")(show)
    group.command("logs")(logs)
    group.command("trace")(trace)
    group.command("attach")(attach)
    group.command("retry")(retry)
    group.command("cancel")(cancel)
    app.add_typer(group, name="run")


def list_runs(
    campaign: Annotated[
        str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
    ],
    as_json: JsonOption = False,
) -> None:
    """List a campaign's runs with state, step and gain."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"campaigns/{segment(campaign)}/runs")
        rows = [
            (
                r["id"],
                r["label"],
                r["state"] if r["state"] != "active" else r["attempt_state"],
                None if r["step"] is None else f"{r['step']}/{r['stop_at_step'] or '?'}",
                None if r["gain"] is None else f"{r['gain']:+.3f}",
                r["attempts"],
                r["reason"][:REASON_LENGTH],
            )
            for r in body["runs"]
        ]
        header = ("run", "label", "state", "step", "gain", "attempts", "reason")
        emit(body, table(rows, header) if rows else ["no run yet"], as_json=as_json)


def show(run: RunArgument, as_json: JsonOption = False) -> None:
    """Explain one run in a screen: attempts with reasons, generations, steps, gains, the failing process's last lines."""
    from a3r.cli.run_screen import failing_log, run_screen
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"runs/{segment(run)}")
        tail: list[str] = []
        name = failing_log(body)
        if name is not None:
            page = read_log(client, body["id"], name, offset=-16000)
            tail = telling_lines(page["data"])
            body["log_tail"] = {"name": name, "lines": tail}
        emit(body, run_screen(body, name, tail), as_json=as_json)


def logs(
    run: RunArgument,
    name: Annotated[
        str,
        typer.Option(
            help="client, server, evaluator, environment, server-NAME, steps-NAME; 'run show' lists them."
        ),
    ] = "client",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which attempt; default: the last.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help=f"From the beginning, not only the last {TAIL} bytes.")
    ] = False,
    offset: Annotated[
        int | None, typer.Option(help="From this byte on; negative: so many before the end.")
    ] = None,
    remote: Annotated[
        bool,
        typer.Option(
            "--remote", help="Ask the worker: what lies on its host, not what has arrived."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a log of a run as far as it has arrived. Control characters are replaced, so that logs cannot steer a terminal.

    With --json: one document with the text. Then, and with --remote, nothing is followed.
    """
    from a3r.hub.client import segment

    begin = 0 if whole else -TAIL if offset is None else offset
    with reported(as_json=as_json), hub() as client:
        body = client.get(f"runs/{segment(run)}")
        run_id = body["id"]
        if remote:
            _remote(client, body, name, begin, attempt, as_json=as_json)
            return
        page = read_log(client, run_id, name, offset=begin, attempt=attempt)
        if as_json:
            emit(_document(client, run_id, page, attempt), [], as_json=True)
            return
        pump(client, run_id, page, attempt, follow=follow)


def _remote(
    client: HubClient, body: Json, name: str, begin: int, attempt: int | None, *, as_json: bool
) -> None:
    found = attempt_of(body, attempt)
    page = remote_pages(client, found["id"], name, begin)
    data: bytes = page.pop("data")
    if as_json:
        told = {"run": body["id"], "attempt": found["ordinal"], **page}
        emit({**told, "text": data.decode("utf-8", "replace")}, [], as_json=True)
        return
    _write(data)


def _document(client: HubClient, run_id: str, page: Json, attempt: int | None) -> Json:
    data: bytes = page["data"]
    first = page
    while page["next_offset"] < page["size"] and page["data"]:
        page = read_log(client, run_id, first["name"], offset=page["next_offset"], attempt=attempt)
        data += page["data"]
    text = data.decode("utf-8", "replace")
    kept = ("attempt", "name", "offset", "size", "ended")
    return {"run": run_id, **{k: first[k] for k in kept}, "text": text}


def pump(client: HubClient, run_id: str, page: Json, attempt: int | None, *, follow: bool) -> None:
    """Write pages until the log's end (with ``follow``: until the attempt is over)."""
    rest = b""
    while True:
        # A character may lie across two pages: only whole lines are decoded before the end.
        rest += page["data"]
        whole, _, rest = rest.rpartition(b"\n")
        if whole:
            _write(whole + b"\n")
        at_end = page["next_offset"] >= page["size"]
        if at_end and (page["ended"] or not follow):
            break
        if at_end:
            time.sleep(FOLLOW_S)
        page = read_log(
            client, run_id, page["name"], offset=page["next_offset"], attempt=page["attempt"]
        )
    if rest:
        _write(rest)


def _write(data: bytes) -> None:
    sys.stdout.write(
        printable(data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n"))
    )
    sys.stdout.flush()


def read_log(
    client: HubClient, run_id: str, name: str, *, offset: int, attempt: int | None = None
) -> Json:
    """Return one page, its bytes under ``data``."""
    from a3r.hub.client import segment

    page = client.get(
        f"runs/{segment(run_id)}/logs", name=name, offset=offset, limit=CHUNK, attempt=attempt
    )
    page["data"] = base64.b64decode(page.pop("data_b64"))
    return page


def telling_lines(data: bytes, most: int = 12) -> list[str]:
    """The lines that tell what happened: the end of the last traceback where there is one, else the last lines."""
    lines = [line for line in log_lines(data) if not line.startswith("--- a3r")]
    starts = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    if not starts or len(lines) - starts[-1] <= most:
        return lines[-most:]
    trace = lines[starts[-1] :]
    # Its frames are indented; the first line after them that is not says what it was.
    end = next((n for n, line in enumerate(trace[1:], 1) if not line.startswith(" ")), len(trace))
    return trace[max(0, end - most + 1) : end + 1]


def log_lines(data: bytes) -> list[str]:
    """Lines of a log, control characters replaced, empty ones left out."""
    text = printable(data.decode("utf-8", "replace").replace("\r", "\n"))
    return [line for line in text.splitlines() if line.strip()]


def retry(run: RunArgument, as_json: JsonOption = False) -> None:
    """Queue one more attempt of a run that ended without a result, beyond its limit; the report discloses it.

    A blocked campaign goes on. Refused once the run's stage was analysed: a late result may not change a conclusion. Exit
    codes: 0 queued, 2 no such run, 3 not possible now.
    """
    _steer(run, "retry", "one more attempt is queued", as_json=as_json)


def cancel(run: RunArgument, as_json: JsonOption = False) -> None:
    """End a run: an attempt under way is stopped by its worker. One that has ended stays as it is."""
    _steer(run, "cancel", "told to end", ended="it had ended before", as_json=as_json)


def _steer(run: str, verb: str, done: str, *, ended: str = "", as_json: bool) -> None:
    """``ended``: what is said instead of ``done`` of a run that was over already."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        before = client.get(f"runs/{segment(run)}")
        body = client.post(f"runs/{segment(before['id'])}/{verb}")
        last = body["attempts"][-1]["state"] if body["attempts"] else "no attempt"
        said = ended if ended and before["state"] in OVER else done
        line = f"{body['id']} ({body['label']}): {said}; now {body['state']}, {last}"
        emit(body, [line], as_json=as_json)


def attach(run: RunArgument) -> None:
    """Attach to the tmux windows of a run that is under way here; of one on a host over SSH, print the command for it.

    Without tmux it says how to look instead. Leave with Ctrl-b d. Exit codes: 0 detached, 1 no tmux here, 2 no such run or nothing under way.
    """
    with reported(as_json=False):
        from a3r.cli.terminal import attach_to, far_attach
        from a3r.hub.client import segment
        from a3r.worker.folder import session_name

        with hub() as client:
            body = client.get(f"runs/{segment(run)}")
            workers = {w["id"]: w["host"] for w in client.get("daemon")["workers"]}
            hosts = client.get("hosts")["hosts"]
        live = [a for a in body["attempts"] if a["live"] and a["worker_id"]]
        instead = f"a3r run logs {body['id']} --follow"
        if not live:
            raise NotFound(
                f"Run {body['id']} has no attempt under way (it is {body['state']}).",
                hint=f"'a3r run logs {body['id']}' shows its logs.",
            )
        session = session_name(live[-1]["id"])
        far = [h for h in hosts if h["worker"] and h["worker"]["id"] == live[-1]["worker_id"]]
        if far:
            say(
                f"{body['label']} runs on {far[0]['name']}; this shows its windows (leave with Ctrl-b d):"
            )
            print(far_attach(far[0], session))
            return
        host = workers.get(live[-1]["worker_id"], "")
        if host != socket.gethostname():
            raise HostError(
                f"The attempt runs on host {host!r}; tmux windows are seen there.",
                hint=f"Look from here with: {instead}",
            )
        say(f"attaching to {body['label']}; leave with Ctrl-b d")
        attach_to(session, instead=instead)
