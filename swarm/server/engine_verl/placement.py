"""Where the engine's processes run: a Ray session, its placement groups, and a way to free what a dead one left behind.

Everything of one server carries its nonce: the Ray namespace, the names of its placement groups and a variable in the
environment of each process. ``reap`` frees what carries it and nothing else.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swarm.protocol.config import VerlConfig
from swarm.protocol.errors import ConfigError, EngineFailed

logger = logging.getLogger(__name__)

NONCE = "SWARM_ENGINE_NONCE"
PREFIX = "swarm-"
TRIES = 4
OBJECT_STORE_BYTES = 500_000_000
"""Of a Ray of our own without GPUs, for tests: weights of tiny models pass through it."""
CPU_SLOTS = 16


def nonce_of(environment: dict[str, str]) -> str:
    """Return the server's nonce, as its front gave it; a random one without a front."""
    return environment.get(NONCE) or secrets.token_hex(6)


def join_ray(verl: VerlConfig, nonce: str, *, device: str, variables: dict[str, str]) -> None:
    """Connect to the cluster of ``verl.ray_address``, or start a Ray that ends with this process.

    Raises:
        EngineFailed: the cluster does not answer.
        ConfigError: it has fewer GPUs than ``verl.nodes`` x ``verl.gpus_per_node``.
    """
    import ray

    # "local": without an address Ray would join whatever cluster it finds on this machine.
    own: dict[str, Any] = {"address": "local", "include_dashboard": False}
    if device == "cpu":
        gpus = verl.nodes * verl.gpus_per_node
        own |= {
            "num_gpus": gpus,
            "num_cpus": CPU_SLOTS * gpus,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    settings: dict[str, Any] = {"address": verl.ray_address} if verl.ray_address else own
    _connect(
        TRIES if verl.ray_address is None else 1,
        namespace=PREFIX + nonce,
        log_to_driver=True,
        runtime_env={"env_vars": {**variables, NONCE: nonce}},
        **settings,
    )
    have, want = ray.cluster_resources().get("GPU", 0), verl.nodes * verl.gpus_per_node
    if have < want:
        ray.shutdown()
        raise ConfigError(
            f"The Ray cluster has {have:g} GPUs, verl.nodes x verl.gpus_per_node asks for {want}.",
            hint="Lower them, or add nodes: ray start --address=<head>.",
        )


def _connect(tries: int, **settings: Any) -> None:
    """``ray.init``; a Ray of our own gives up after 30 s, which a busy machine may need more than once."""
    import ray

    for left in reversed(range(tries)):
        try:
            ray.init(**settings)
        except Exception as error:
            # Not narrower: Ray raises Exception itself when its own node does not start in time.
            ray.shutdown()
            if left:
                logger.warning("Ray did not start, trying again: %s", error)
                continue
            raise EngineFailed(
                f"Ray at {settings.get('address', 'this machine')!r} did not answer: {error}",
                hint="Check the address (host:6379 of the head node) and that the same Ray version runs there.",
            ) from error
        return


def pool_of(verl: VerlConfig, nonce: str) -> Any:
    """Return verl's resource pool: one placement group a node, one bundle a GPU, named with the nonce.

    Raises:
        EngineFailed: the cluster did not free the GPUs in time.
    """
    from ray.exceptions import GetTimeoutError
    from verl.single_controller.ray import RayResourcePool

    pool = RayResourcePool(
        process_on_nodes=[verl.gpus_per_node] * verl.nodes,
        use_gpu=True,
        max_colocate_count=3,
        name_prefix=f"{PREFIX}{nonce}-",
    )
    try:
        pool.get_placement_groups(device_name=_device_name())
    except GetTimeoutError as error:
        raise EngineFailed(
            f"No {verl.nodes} x {verl.gpus_per_node} GPUs became free: {error}",
            hint="Another server holds them; 'ray status' shows who.",
        ) from error
    return pool


def leave_ray() -> None:
    """Disconnect; a Ray of our own ends with all that it runs. Safe twice."""
    import ray

    ray.shutdown()


def reap(nonce: str, *, address: str | None = None, spare: Iterable[int] = ()) -> dict[str, Any]:
    """Free what a dead server with this nonce left: placement groups and actors on the cluster, processes on every node.

    ``spare`` are process ids to leave alone, beside this process and its parents. Returns ``{"groups", "actors", "processes"}``,
    what was freed. Freeing nothing is no error; safe to call twice.
    """
    freed: dict[str, Any] = {"groups": [], "actors": [], "processes": []}
    if address is not None:
        freed |= _reap_cluster(nonce, address)
    freed["processes"] += reap_processes(nonce, spare)
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


def _reap_cluster(nonce: str, address: str) -> dict[str, Any]:
    import ray
    from ray.util import placement_group_table, remove_placement_group
    from ray.util.placement_group import PlacementGroup

    fresh = not ray.is_initialized()
    if fresh:
        ray.init(address=address, namespace=PREFIX + nonce, log_to_driver=False)
    freed: dict[str, Any] = {"groups": [], "actors": []}
    actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    for entry in actors:
        if entry["namespace"] == PREFIX + nonce:
            ray.kill(ray.get_actor(entry["name"], namespace=entry["namespace"]))
            freed["actors"].append(entry["name"])
    for identity, row in placement_group_table().items():
        if row["name"].startswith(f"{PREFIX}{nonce}-") and row["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(identity))))
            freed["groups"].append(row["name"])
    if fresh:
        ray.shutdown()
    return freed


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


def _device_name() -> str:
    from verl.utils.device import get_device_name

    return get_device_name()
