"""What a person may say of a pool of each kind, and what must be said."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from a3r.core.addresses import is_loopback, trouble_with
from a3r.core.errors import PoolRefused
from a3r.core.pools import PoolKind, PoolOptions

OWN = {
    PoolKind.RAY: {"address", "token_file", "runtime_env"},
    PoolKind.SLURM: {"folder", "slurm", "time_limit_min"},
    PoolKind.LOCAL: {"folder", "time_limit_min"},
    PoolKind.SKYPILOT: {"task_file"},
}
"""Keys that only these kinds know; all others are for every kind."""
CLIENT_PORT = 10_001
"""Of Ray's client, which is not its job server."""
DASHBOARD_PORT = 8_265
REACH_HINT = (
    "let the daemon listen for workers (settings workers_listen, workers_tls_cert, workers_tls_key) and give --hub-url, "
    "as https://this-machine:8443"
)


def checked(kind: PoolKind, options: PoolOptions, door_url: str = "") -> PoolOptions:
    """The options as they are kept: addresses in full, the hub's URL resolved.

    Args:
        kind: which engine.
        options: as a person gave them.
        door_url: where workers of other machines come in, if the daemon has such a door; empty = it has none.

    Raises:
        PoolRefused: a key that the kind does not know, one that is missing, a file that cannot be read, or a cluster on other
            machines without a hub that they can reach.
    """
    given = set(options.model_dump(exclude_defaults=True))
    foreign = given & set().union(*OWN.values()) - OWN[kind]
    if foreign:
        raise PoolRefused(
            f"a {kind.value} pool has no option {sorted(foreign)[0].replace('_', '-')!r}",
            hint=f"its own are {', '.join(sorted(k.replace('_', '-') for k in OWN[kind]))}",
        )
    change: dict[str, object] = {}
    if kind is PoolKind.RAY:
        change["address"] = ray_address(options.address)
    if kind is PoolKind.SLURM and not options.folder:
        raise PoolRefused(
            "a Slurm pool needs --folder on a disk that its nodes share",
            hint="submitit keeps its files there, and nodes must be able to write to it",
        )
    for key in ("ca_file", "token_file", "task_file"):
        if (path := getattr(options, key)) and not Path(path).is_file():
            raise PoolRefused(f"{path!r} is no file", hint=f"of --{key.replace('_', '-')}")
    if kind is PoolKind.SKYPILOT and not options.task_file:
        raise PoolRefused("a SkyPilot pool needs a task file", hint="resources and setup, no run")
    found = options.model_copy(update=change)
    url = found.hub_url or door_url
    if not url and not is_here(kind, found):
        raise PoolRefused(
            "the cluster's machines cannot reach this hub: it listens on loopback", hint=REACH_HINT
        )
    wrong = trouble_with(found.hub_url, here=False) if found.hub_url else None
    if wrong is not None:
        raise PoolRefused(f"--hub-url {found.hub_url!r}: {wrong[0]}", hint=wrong[1])
    return found.model_copy(update={"hub_url": url})


def ray_address(text: str) -> str:
    """``ray://head[:8265]`` or ``http(s)://…`` as the URL of the job server, without a final slash.

    Raises:
        PoolRefused: no host, or the port of Ray's client.
    """
    parts = urlsplit(text if "://" in text else f"ray://{text}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if not parts.hostname or port == -1 or parts.scheme not in ("ray", "http", "https"):
        raise PoolRefused(f"{text!r} is no Ray address", hint="ray://head-node:8265")
    if port == CLIENT_PORT:
        raise PoolRefused(
            f"port {CLIENT_PORT} is Ray's client; jobs are taken by the dashboard's port",
            hint=f"ray://{parts.hostname}:{DASHBOARD_PORT}",
        )
    if parts.scheme != "ray":
        return text.rstrip("/")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"http://{host}:{port or DASHBOARD_PORT}"


def is_here(kind: PoolKind, options: PoolOptions) -> bool:
    """Whether the pool's jobs run on this machine, so that loopback reaches the hub."""
    if kind is PoolKind.LOCAL:
        return True
    if kind is not PoolKind.RAY:
        return False
    return is_loopback(urlsplit(options.address).hostname or "")
