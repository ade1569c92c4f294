"""The rollout's replicas: launched on the trainer's accelerators or on their own, given its weights, launched anew when dead.

Every call blocks, for seconds to minutes; the engine makes them from the thread that also trains, so that no two overlap.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import import_external_libs

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.launching import replica_class
from swarm.server.engine_verl.leftovers import Process, end_processes

ANSWER_S = 5.0


class Replicas:
    """Replicas by number. ``group`` trains; ``pools``, one a replica, or None when they live on the trainer's accelerators."""

    def __init__(self, config: Any, group: Any, *, nonce: str, pools: list[Any] | None) -> None:
        """``config`` is verl's ``actor_rollout_ref``."""
        self._config = config
        self._group = group
        self._nonce = nonce
        self._pools = pools
        self._class = replica_class(config.rollout.name)
        self._births = 0
        count = group.world_size // width(config.rollout) if pools is None else len(pools)
        made = [self._make(rank) for rank in range(count)]
        asyncio.run(_all([self._launch(replica) for replica in made]))
        self._all: dict[int, Any] = dict(enumerate(made))

    @property
    def servers(self) -> list[Any]:
        """Handles to sample with, by number."""
        return [replica.server_handle for replica in self._all.values()]

    @property
    def addresses(self) -> list[str]:
        """Host and port of vLLM's own HTTP server (its metrics), by number."""
        return [replica.server_address for replica in self._all.values()]

    def served(self, ranks: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return what each worker says of the weights that it serves, by number of the replica; of some, or of all.

        Raises:
            RayError: a replica died.
        """
        asked = list(self._all if ranks is None else ranks)
        servers = [self._all[rank].server_handle for rank in asked]
        names = ray.get([server.served_fingerprint.remote() for server in servers])
        return dict(zip(asked, names, strict=True))

    def inside(self) -> list[list[str]]:
        """Requests that vLLM holds now, by number of the replica."""
        return ray.get([server.inside.remote() for server in self.servers])

    def hold(self) -> None:
        """Stop every replica (of vLLM) between two tokens; requests stay inside, until ``go_on``."""
        ray.get([server.hold.remote() for server in self.servers])

    def go_on(self) -> None:
        """Sample again after ``hold``."""
        ray.get([server.resume_engine_generation.remote() for server in self.servers])

    def processes(self, rank: int) -> list[Process]:
        """Processes of a replica as it was launched, its first server's own first."""
        return [process for _, found in self._all[rank].processes for process in found]

    def serve(self, version: int) -> None:
        """Hand the trainer's weights to every replica, which forgets its prefix caches."""
        self._manager(list(self._all.values())).update_weights(global_steps=version)

    def sleep(self) -> None:
        """Give the accelerators' memory to the trainer; ``serve`` takes it back."""
        self._manager(list(self._all.values())).sleep_replicas()

    def replace(self, rank: int, version: int) -> Any:
        """End what is left of a dead replica, launch it anew and give it the trainer's weights; returns its server's handle.

        The others go on. What a failed try leaves behind is ended by the next one.
        """
        self._end(self._all[rank])
        fresh = self._all[rank] = self._make(rank)
        asyncio.run(self._launch(fresh))
        if self._pools is None:
            self._group.refill(rank, version)
        else:
            self._manager([fresh]).update_weights(global_steps=version)
        return fresh.server_handle

    # -- inside ---------------------------------------------------------------------------------------------

    def _make(self, rank: int) -> Any:
        return self._class(
            replica_rank=rank,
            config=self._config.rollout,
            model_config=self._config.model,
            gpus_per_node=self._config.rollout.n_gpus_per_node,
        )

    async def _launch(self, replica: Any) -> None:
        if self._pools is None:
            await replica.init_hybrid(self._group)
            return
        self._births += 1
        name = f"rollout_{replica.replica_rank}_{self._births}"
        await replica.init_apart(self._pools[replica.replica_rank], name)

    def _manager(self, replicas: list[Any]) -> Any:
        settings = omega_conf_to_dataclass(self._config.rollout.checkpoint_engine)
        return CheckpointEngineManager(config=settings, actor_wg=self._group, replicas=replicas)

    def _end(self, replica: Any) -> None:
        known = replica.processes or _asked(replica.servers)
        doomed = [*replica.servers, *(replica.workers if self._pools is not None else [])]
        for actor in doomed:
            ray.kill(actor, no_restart=True)
        clean = ray.remote(end_processes)
        for node, processes in known:
            there = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ended = clean.options(num_cpus=0, scheduling_strategy=there)
            ray.get(ended.remote(processes, self._nonce))
        _await_death(doomed)


def width(rollout: Any) -> int:
    """Return the accelerators of one replica; ``rollout`` is verl's section."""
    return (
        rollout.tensor_model_parallel_size
        * rollout.data_parallel_size
        * rollout.pipeline_model_parallel_size
    )


def check_backend(rollout: Any, *, apart: bool) -> None:
    """Refuse a way of handing over weights that does not fit the placement, or that lacks a package.

    Raises:
        ConfigError: says which.
    """
    settings = rollout.checkpoint_engine
    key = "actor_rollout_ref.rollout.checkpoint_engine.backend"
    if (settings.backend == "naive") == apart:
        raise ConfigError(
            f"verl.options: {key!r} is {settings.backend!r}, which goes {'without' if apart else 'with'} verl.rollout_gpus.",
            hint=f"Leave {key!r} out.",
        )
    import_external_libs(settings.custom_backend_module or None)
    try:
        CheckpointEngineRegistry.get(settings.backend)
    except ValueError as error:
        raise ConfigError(
            f"verl's checkpoint engine {settings.backend!r} cannot be used: {error}",
            hint=f"Install what it needs, or set {key}: swarm_gloo in verl.options (TCP, slower).",
        ) from error


async def _all(work: list[Any]) -> None:
    await asyncio.gather(*work)


def _asked(servers: list[Any]) -> list[tuple[str, list[Process]]]:
    """Processes of servers that did not get to the end of their launch; those that do not answer have none."""
    found: list[tuple[str, list[Process]]] = []
    for server in servers:
        with contextlib.suppress(RayError):
            found.append(ray.get(server.processes.remote(), timeout=ANSWER_S))
    return found


def _await_death(actors: list[Any]) -> None:
    """Wait until Ray knows that they are dead, and their names are free."""
    for actor in actors:
        try:
            ray.get(actor.__ray_ready__.remote())
        except RayActorError:
            continue
