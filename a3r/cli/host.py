"""``a3r host``: add check list drain resume remove. Hosts of one's own, reached over SSH."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, hub, reported, say, table, workspace, workspace_or_new
from a3r.core.errors import A3RError, HostError

if TYPE_CHECKING:
    from a3r.hub.client import HubClient

Json = dict[str, Any]

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the host, as in host list.")]
LOOK_S = 0.5
COME_S = 90.0


class HostUsage(A3RError):
    """The options do not go together."""

    code = "usage"
    exit_code = 2


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group(
        "Hosts over SSH. Their workers need no port open, and outlive links, daemons and terminals."
    )
    group.command("add")(add)
    group.command("check")(check)
    group.command("list")(list_hosts)
    group.command("drain")(drain)
    group.command("resume")(resume)
    group.command("remove")(remove)
    app.add_typer(group, name="host")


AddressArgument = Annotated[str, typer.Argument(help="user@host, or a name from ~/.ssh/config.")]
NewNameOption = Annotated[str | None, typer.Option(help="Default: the host's name.")]
GpusOption = Annotated[
    str | None, typer.Option(help="GPUs that it may give away, as 0-3,6; default: all.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(min=0, help="Attempts at once; default: one a GPU, else one a core."),
]
PythonOption = Annotated[
    str, typer.Option(help="Interpreter there: with a3r it is used as it is, else built upon.")
]
FolderOption = Annotated[
    str, typer.Option(help="Folder there, on a local disk; default: ~/.a3r-host/NAME.")
]
PortOption = Annotated[int | None, typer.Option(min=1, max=65535, help="Of ssh.")]
IdentityOption = Annotated[Path | None, typer.Option(help="Private key for ssh.")]
SshConfigOption = Annotated[
    Path | None, typer.Option(help="Configuration of ssh in place of your own.")
]
AcceptKeyOption = Annotated[
    str,
    typer.Option(metavar="SHA256:...", help="Trust the host if its key has this fingerprint."),
]
HubUrlOption = Annotated[
    str,
    typer.Option(help="Where the host dials the hub itself; default: through the SSH link."),
]
CaFileOption = Annotated[
    Path | None, typer.Option(help="Certificates (PEM) to trust for an https --hub-url.")
]
AliveSOption = Annotated[
    int, typer.Option(min=1, max=600, help="A link silent for 3 times so long is broken.")
]
WaitOption = Annotated[bool, typer.Option(help="Wait until its worker has come.")]


def add(
    address: AddressArgument,
    name: NewNameOption = None,
    gpus: GpusOption = None,
    slots: SlotsOption = None,
    python: PythonOption = "",
    folder: FolderOption = "",
    port: PortOption = None,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    accept_key: AcceptKeyOption = "",
    hub_url: HubUrlOption = "",
    ca_file: CaFileOption = None,
    alive_s: AliveSOption = 5,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Set a host up and put its worker to work; again: bring it up to date. Asks nothing, uses keys only.

    Exit codes: 0 its worker has come (or --no-wait), 1 the host refuses or lacks something, 2 bad input.
    """
    with reported(as_json=as_json):
        from a3r.hosts.adding import Adding
        from a3r.hosts.options import FOLDER, HostOptions, check_name, default_name, known_hosts

        _check_gpus(gpus)
        host = check_name(name or default_name(address))
        options = HostOptions(
            folder=folder or f"{FOLDER}/{host}",
            python=python,
            gpus=gpus or "",
            slots=slots,
            port=port,
            identity=_absolute(identity, "--identity"),
            config=_absolute(ssh_config, "--ssh-config"),
            hub_url=_url(hub_url),
            alive_s=alive_s,
        )
        ssh = options.ssh(address, known_hosts(workspace_or_new()))
        pem = _pem(ca_file, hub_url)
        with hub() as client:
            made = Adding(host, ssh, options, accept_key, pem, say).run(client)
            body = _come(client, host) if wait else {**client.get(f"hosts/{host}")}
        _emit_added({**body, "changes": made["changes"]}, wait=wait, as_json=as_json)


def _emit_added(body: Json, *, wait: bool, as_json: bool) -> None:
    emit(body, _added(body, wait=wait), as_json=as_json)


def _added(body: Json, *, wait: bool) -> list[str]:
    done = body["changes"] or ["nothing to do: it is as it should be"]
    lines = [f"{body['name']}: {change}" for change in done]
    if wait and body["worker"]:
        worker = body["worker"]
        gpus = len(worker["inventory"].get("gpus") or ())
        lines.append(f"its worker {worker['id']} has come: {worker['slots']} slots, {gpus} GPUs")
    lines.append(f"prove it all: a3r host check {body['name']}")
    return lines


def _come(client: HubClient, host: str) -> Json:
    """Wait until the worker has spoken since now."""
    ends, begun = time.monotonic() + COME_S, time.monotonic()
    say("waiting for its worker")
    while time.monotonic() < ends:
        body = client.get(f"hosts/{host}")
        worker = body["worker"]
        if body["link"] == "up" and worker and worker["silent_s"] < time.monotonic() - begun:
            return body
        if body["link"] == "broken":
            raise HostError(
                f"The daemon can not reach {host!r}: {body['detail']}",
                hint="This terminal could: has the daemon the same keys (agent, --identity)? It keeps trying.",
            )
        time.sleep(LOOK_S)
    body = client.get(f"hosts/{host}")
    raise HostError(
        f"The worker of {host!r} has not come within {COME_S:.0f} s. {body['detail']}".rstrip(),
        hint=f"'a3r host check {host}' looks for the cause; the daemon keeps trying.",
    )


def list_hosts(as_json: JsonOption = False) -> None:
    """Show the hosts: link, worker, GPUs, attempts."""
    with reported(as_json=as_json), hub() as client:
        body = client.get("hosts")
        rows = [_line(host) for host in body["hosts"]]
        head = ("host", "address", "link", "worker", "slots", "gpus", "attempts", "last word", "")
        emit(body, table(rows, head) if rows else ["no host yet: a3r host add"], as_json=as_json)


def _line(host: Json) -> tuple[Any, ...]:
    worker: Json = host["worker"] or dict[str, Any]()
    wanted = "leaving" if host["state"] == "removing" else worker.get("state", "none yet")
    return (
        host["name"],
        host["address"],
        host["link"],
        wanted,
        worker.get("slots"),
        len(worker["inventory"].get("gpus") or ()) if worker else None,
        len(worker["attempts"]) if worker else None,
        f"{worker['silent_s']} s ago" if worker else None,
        host["detail"],
    )


def check(
    name: NameArgument,
    episode: Annotated[
        bool, typer.Option(help="Play a debug episode there too (half a minute).")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Prove a host: link, a3r, tmux, disk, GPUs, clock, hub, worker, and an episode on a server of its own.

    Each line is ok, failed or not checked, with its reason. Exit codes: 0 nothing failed, 1 something did.
    """
    with reported(as_json=as_json):
        from a3r.hosts.checking import Checking
        from a3r.hosts.options import known_hosts
        from a3r.hub.client import segment

        with hub() as client:
            path = f"hosts/{segment(name)}"
            known = known_hosts(workspace())
            found = Checking(lambda: client.get(path), known, say).run(episode=episode)
        failed = [c for c in found if c.state == "failed"]
        document: Json = {"host": name, "ok": not failed, "checks": [c.as_json() for c in found]}
        lines: list[str] = []
        for one in found:
            lines.append(f"{one.state:<11}  {one.name}: {one.detail}")
            if one.hint and one.state == "failed":
                lines.append(f"             hint: {one.hint}")
        emit(document, lines, as_json=as_json)
        if failed:
            raise typer.Exit(1)


def drain(name: NameArgument, as_json: JsonOption = False) -> None:
    """Let the host finish what it has and give it nothing new."""
    _want(name, "draining", as_json=as_json)


def resume(name: NameArgument, as_json: JsonOption = False) -> None:
    """Give a draining host work again."""
    _want(name, "active", as_json=as_json)


def _want(name: str, state: str, *, as_json: bool) -> None:
    with reported(as_json=as_json), hub() as client:
        from a3r.hub.client import segment

        body = client.post(f"hosts/{segment(name)}/state", {"state": state})
        held = len(body["worker"]["attempts"]) if body["worker"] else 0
        emit(body, [f"{name} is {state}; it has {held} attempt(s)"], as_json=as_json)


def remove(
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="At once: its attempts are ended, and run elsewhere.")
    ] = False,
    delete_files: Annotated[
        bool, typer.Option("--delete-files", help="Delete its folder on the host too.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has left.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Let a host go: it finishes what it has, its worker ends, link and token go. Its files stay unless told otherwise.

    Ctrl-C leaves the rest to the daemon. Exit codes: 0 it has left (or --no-wait), 1 it could not be told, 2 no such host.
    """
    with reported(as_json=as_json):
        from a3r.hosts.leaving import Leaving
        from a3r.hosts.options import known_hosts

        if delete_files and not (wait or force):
            raise HostUsage("--delete-files has to wait.", hint="Leave --no-wait out, or --force.")
        leaving = Leaving(name, known_hosts(workspace()), say, delete=delete_files)
        with hub() as client:
            body = leaving.at_once(client) if force else leaving.in_order(client, wait=wait)
        emit(body, body["words"], as_json=as_json)


def _check_gpus(gpus: str | None) -> None:
    from a3r.worker.gpus import parse_indices

    try:
        if gpus is not None:
            parse_indices(gpus)
    except ValueError as error:
        raise HostUsage(f"--gpus: {error}.", hint="Write indices and ranges, as 0-3,6.") from error


def _absolute(path: Path | None, option: str) -> str:
    """The daemon stands in another folder."""
    if path is None:
        return ""
    found = path.expanduser().absolute()
    if not found.is_file():
        raise HostUsage(f"{option} {str(path)!r} is no file.")
    return str(found)


def _url(text: str) -> str:
    from a3r.core.addresses import trouble_with

    wrong = trouble_with(text, here=False) if text else None
    if wrong is not None:
        raise HostUsage(f"--hub-url {text!r}: {wrong[0]}.", hint=wrong[1])
    return text


def _pem(ca_file: Path | None, hub_url: str) -> str:
    if ca_file is None:
        return ""
    if not hub_url:
        raise HostUsage(
            "--ca-file goes with --hub-url.", hint="A link of ssh needs no certificate."
        )
    try:
        return ca_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HostUsage(f"--ca-file {str(ca_file)!r} cannot be read: {error}.") from error
