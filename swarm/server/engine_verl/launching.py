"""How a replica of the rollout is launched: verl's replica of vLLM or SGLang with our server class, here or on its own accelerators."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import asyncio
from typing import Any, cast

import ray
from verl.single_controller.ray import RayWorkerGroup
from verl.utils.device import get_device_name
from verl.workers.rollout.replica import RolloutMode, get_rollout_replica_class

from swarm.server.engine_verl.leftovers import Process

AnyBase = cast("Any", object)
"""What follows is mixed into replicas of verl's, which tell no types."""


class Launching(AnyBase):
    """Mixed into a replica of verl's: launched in a place of ours, with its processes known."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As verl's."""
        super().__init__(*args, **kwargs)
        self.processes: list[tuple[str, list[Process]]] = []
        """Ray node and processes, a server."""

    async def init_apart(self, pool: Any, name: str) -> None:
        """Do as verl's ``init_standalone``, in a given resource pool, which carries the server's nonce."""
        self.rollout_mode = RolloutMode.STANDALONE
        self.resource_pool = pool
        group = RayWorkerGroup(
            resource_pool=pool,
            ray_cls_with_init=self.get_ray_class_with_init_args(),
            bin_pack=False,
            name_prefix=name,
            use_gpu=True,
            device_name=get_device_name(),
        )
        self.workers = group.workers
        await self.launch_servers()

    async def launch_servers(self) -> None:
        """As verl's, and note which processes came of it."""
        await super().launch_servers()
        self.processes = await asyncio.gather(*(s.processes.remote() for s in self.servers))


class Holding(Launching):
    """A replica of vLLM's, which keeps requests while weights arrive on accelerators of its own."""

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Before weights arrive: hold requests instead of aborting them."""
        await self.servers[0].hold.remote()
        return {"aborted_count": 0, "request_ids": []}

    async def resume_generation(self) -> None:
        """Go on after ``abort_all_requests``."""
        await self.servers[0].resume_engine_generation.remote()

    async def release_kv_cache(self) -> None:
        """Do nothing: a rollout apart has the memory to itself."""

    async def resume_kv_cache(self) -> None:
        """Do nothing; see ``release_kv_cache``."""


def replica_class(rollout: str) -> type[Any]:
    """Return the replica class of ``vllm`` or ``sglang``, which must be installed."""
    base = cast("Any", get_rollout_replica_class(rollout))
    launching = cast("Any", Holding if rollout == "vllm" else Launching)

    class SwarmReplica(launching, base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = ray.remote(_server_class(rollout))

    return SwarmReplica


def _server_class(rollout: str) -> type[Any]:
    if rollout == "sglang":
        from swarm.server.engine_verl.sglang_server import SglangServer

        return SglangServer
    from swarm.server.engine_verl.vllm_server import SwarmServer

    return SwarmServer
