"""Where the engine's processes run: a Ray session and its placement groups.

Everything of one server carries its nonce: the Ray namespace, the names of its placement groups and a variable in the
environment of each process. ``reaping`` frees what carries it and nothing else.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any

from swarm.protocol.config import VerlConfig
from swarm.protocol.errors import ConfigError, EngineFailed
from swarm.server.engine_verl.apart import fits, shapes
from swarm.server.engine_verl.nonces import NONCE, PREFIX

logger = logging.getLogger(__name__)

TRIES = 4
OBJECT_STORE_BYTES = 500_000_000
"""Of a Ray of our own without GPUs, for tests: weights of tiny models pass through it."""
CPU_SLOTS = 16
CPUS_A_GPU = 3
"""Of each bundle: trainer, rollout and a process between them."""


def join_ray(verl: VerlConfig, nonce: str, *, device: str, variables: dict[str, str]) -> None:
    """Connect to the cluster of ``verl.ray_address``, or start a Ray that ends with this process.

    Raises:
        EngineFailed: the cluster does not answer.
        ConfigError: it has too few GPUs, whoever holds them now.
    """
    import ray

    # "local": without an address Ray would join whatever cluster it finds on this machine.
    own: dict[str, Any] = {"address": "local", "include_dashboard": False}
    if device == "cpu":
        gpus = sum(shapes(verl))
        own |= {
            "num_gpus": gpus,
            "num_cpus": CPU_SLOTS * gpus,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    settings: dict[str, Any] = {"address": verl.ray_address} if verl.ray_address else own
    connect(
        TRIES if verl.ray_address is None else 1,
        namespace=PREFIX + nonce,
        log_to_driver=True,
        runtime_env={"env_vars": {**variables, NONCE: nonce}},
        **settings,
    )
    try:
        require_room([row["Resources"] for row in ray.nodes() if row["Alive"]], verl)
    except ConfigError:
        ray.shutdown()
        raise


def require_room(machines: Sequence[Mapping[str, float]], verl: VerlConfig) -> None:
    """Check that the cluster's machines (what each has in all, free or not) can hold what ``verl`` asks for.

    Raises:
        ConfigError: they cannot, whoever else leaves.
    """
    each, apart = verl.gpus_per_node, verl.rollout_gpus
    rooms = [min(has.get("GPU", 0), has.get("CPU", 0) // CPUS_A_GPU) for has in machines]
    if fits(shapes(verl), rooms):
        return
    more = f" and verl.rollout_gpus for {apart.nodes} x {apart.gpus_per_node}" if apart else ""
    told = ", ".join(
        f"{has.get('GPU', 0):g} GPUs and {has.get('CPU', 0):g} CPUs" for has in machines
    )
    raise ConfigError(
        f"The Ray cluster has too few GPUs: verl.nodes x verl.gpus_per_node asks for {verl.nodes} x {each}{more}, each with "
        f"{CPUS_A_GPU} CPUs; its {len(machines)} machines have {told or 'nothing'}.",
        hint="Lower verl.nodes or verl.gpus_per_node, or add machines: ray start --address=<head>:6379.",
    )


def connect(tries: int, **settings: Any) -> None:
    """``ray.init`` with these settings; a Ray of our own gives up after 30 s, which a busy machine may need more than once.

    Raises:
        EngineFailed: it did not answer in ``tries`` times.
    """
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


def pool_of(
    verl: VerlConfig,
    nonce: str,
    *,
    wait_s: float = 300.0,
    sizes: Sequence[int] = (),
    label: str = "",
) -> Any:
    """Return verl's resource pool: one placement group a node, one bundle a GPU, named with the nonce.

    ``sizes``, GPUs a node, and ``label``, part of the names, are for a pool beside the trainer's, which has neither.

    Raises:
        EngineFailed: nobody freed the GPUs within ``wait_s``.
    """
    from verl.single_controller.ray import RayResourcePool

    wanted = list(sizes) or [verl.gpus_per_node] * verl.nodes
    pool = RayResourcePool(
        process_on_nodes=wanted,
        use_gpu=True,
        max_colocate_count=CPUS_A_GPU,
        name_prefix=f"{PREFIX}{nonce}-{label}",
    )
    # verl waits for its placement groups without end.
    waiting: Future[Any] = Future()
    Thread(target=_fill, args=(pool, waiting), name="placement", daemon=True).start()
    try:
        waiting.result(wait_s)
    except TimeoutError as error:
        raise EngineFailed(
            f"No {len(wanted)} x {wanted[0]} GPUs became free in {wait_s:g} s; they are held by: "
            f"{', '.join(_holders(nonce)) or 'nobody that placed a group'}.",
            hint="Stop who holds them ('ray status' shows more), wait longer (engine_hang_s), or add machines.",
        ) from error
    return pool


def _fill(pool: Any, waiting: Future[Any]) -> None:
    try:
        waiting.set_result(pool.get_placement_groups(device_name=_device_name()))
    except Exception as error:  # noqa: BLE001 - told to whoever waits
        waiting.set_exception(error)


def _holders(nonce: str) -> list[str]:
    """Names of the placement groups that others have on the cluster."""
    from ray.util import placement_group_table

    rows = placement_group_table().values()
    held = [row["name"] or row["placement_group_id"] for row in rows if row["state"] == "CREATED"]
    return sorted(name for name in held if not name.startswith(f"{PREFIX}{nonce}-"))


def leave_ray() -> None:
    """Disconnect; a Ray of our own ends with all that it runs. Safe twice."""
    import ray

    ray.shutdown()


def _device_name() -> str:
    from verl.utils.device import get_device_name

    return get_device_name()
