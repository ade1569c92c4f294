"""Frees what a dead server left behind: placement groups and actors of a Ray cluster, processes on each of its machines.

What belongs to a server carries its nonce (see ``nonces``); everything else is left alone. As a program,
``python -m swarm.server.engine_verl.reaping NONCE [ADDRESS]`` prints what was freed as JSON (``swarm reap`` runs it).
"""

# pyright: reportMissingImports=false
# Ray lives in an environment of its own (make setup-verl).

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from swarm.protocol.errors import ConfigError, SwarmError
from swarm.server.engine_verl import dependencies
from swarm.server.engine_verl.nonces import NONCE, PREFIX
from swarm.server.engine_verl.placement import connect

logger = logging.getLogger(__name__)

NODE_S = 60.0
"""How long a machine of the cluster may take to answer."""


@dataclass(frozen=True)
class Spared:
    """Processes of one machine that are left alone, though they carry the nonce."""

    machine: str
    """As of ``this_machine``: a process id means nothing elsewhere."""
    pids: frozenset[int]


@dataclass
class Freed:
    """What was freed. ``processes``: address of a machine (``here`` without a cluster) -> ids of those that were killed."""

    groups: list[str] = field(default_factory=list[str])
    actors: list[str] = field(default_factory=list[str])
    processes: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    silent: list[str] = field(default_factory=list[str])
    """Machines of the cluster that did not answer: what they hold is not known."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def reap(nonce: str, *, address: str | None = None, spare: Iterable[int] = ()) -> Freed:
    """Free what a dead server with this nonce left, here and (with ``address``) on each machine of a Ray cluster.

    ``spare`` are process ids of this machine to leave alone, beside this process and its parents. Freeing nothing is no
    error; safe to call twice.

    Raises:
        ConfigError: Ray is not installed here.
        EngineFailed: the cluster does not answer. What was left on this machine is freed all the same.
    """
    freed = Freed()
    try:
        if address is not None:
            spared = Spared(this_machine(), frozenset({*spare, *_ancestors()}))
            _reap_cluster(nonce, address, spared, freed)
    finally:
        killed = reap_processes(nonce, spare)
    if killed:
        freed.processes["here"] = killed
    return freed


def reap_processes(nonce: str, spare: Iterable[int] = ()) -> list[int]:
    """Kill this machine's processes whose environment carries the nonce, but for ``spare``, this one and its parents."""
    left_alone = {*spare, *_ancestors()}
    killed: list[int] = []
    for pid in _pids_with(f"{NONCE}={nonce}"):
        if pid in left_alone:
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
        killed.append(pid)
    if killed:
        logger.warning("Ended %d processes that an engine before had left.", len(killed))
    return killed


def reap_node(nonce: str, spared: Spared) -> list[int]:
    """``reap_processes`` as a task of a cluster's node; ``spared`` counts on its own machine only."""
    return reap_processes(nonce, spared.pids if spared.machine == this_machine() else ())


def this_machine() -> str:
    """Name the space in which process ids of this process mean something: a boot of a kernel and a namespace of it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - a Path would take the link for a file


def _reap_cluster(nonce: str, address: str, spared: Spared, freed: Freed) -> None:
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"The cluster at {address!r} cannot be asked: {error}.", hint=dependencies.HINT
        ) from error

    fresh = not ray.is_initialized()
    if fresh:
        # Without the nonce: the tasks that look for it would find each other.
        connect(1, address=address, namespace=f"{PREFIX}reap", log_to_driver=False)
    try:
        freed.actors += _kill_actors(nonce)
        freed.groups += _remove_groups(nonce)
        _reap_nodes(nonce, spared, freed)
    finally:
        if fresh:
            ray.shutdown()


def _kill_actors(nonce: str) -> list[str]:
    import ray

    killed: list[str] = []
    named: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    for entry in named:
        if entry["namespace"] != PREFIX + nonce:
            continue
        with suppress(ValueError):  # it has gone meanwhile
            ray.kill(ray.get_actor(entry["name"], namespace=entry["namespace"]))
            killed.append(entry["name"])
    return killed


def _remove_groups(nonce: str) -> list[str]:
    import ray
    from ray.util import placement_group_table, remove_placement_group
    from ray.util.placement_group import PlacementGroup

    removed: list[str] = []
    for identity, row in placement_group_table().items():
        if row["name"].startswith(f"{PREFIX}{nonce}-") and row["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(identity))))
            removed.append(row["name"])
    return removed


def _reap_nodes(nonce: str, spared: Spared, freed: Freed) -> None:
    """A task pinned to each node that lives: an engine's processes outlive the actors that started them."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(reap_node)
    asked: dict[Any, str] = {}
    for node in ray.nodes():
        if node["Alive"]:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answer = task.options(scheduling_strategy=pinned).remote(nonce, spared)
            asked[answer] = str(node["NodeManagerAddress"])
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=NODE_S)
    freed.silent += [asked[answer] for answer in late]
    for answer in done:
        try:
            killed: list[int] = ray.get(answer)
        except RayError as error:
            logger.warning("%s could not be reaped: %s", asked[answer], error)
            freed.silent.append(asked[answer])
            continue
        if killed:
            freed.processes.setdefault(asked[answer], []).extend(killed)


def _ancestors() -> set[int]:
    """This process and those above it, up to init."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _pids_with(variable: str) -> list[int]:
    wanted = variable.encode()
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has gone, or is another user's
        if wanted in variables:
            found.append(int(path.parent.name))
    return found


def main() -> int:
    """Reap what the command line names; returns 0, or 1 after an error, which is printed as JSON too."""
    nonce, *address = sys.argv[1:]
    try:
        told = reap(nonce, address=address[0] if address else None).as_json()
    except SwarmError as error:
        told = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    print(json.dumps(told))  # noqa: T201
    return int("error" in told)


if __name__ == "__main__":
    sys.exit(main())
