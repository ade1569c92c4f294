"""Weights from the trainer to rollout replicas on other devices, over TCP: a checkpoint engine of verl's registry.

verl's own backends need CUDA libraries (NCCL with cupy, NIXL, Mooncake); this one needs torch alone. It makes a rollout apart run
on machines without a GPU (tests), and where the trainer's and the rollout's GPUs share no fast network. verl imports the module
in each worker (``checkpoint_engine.custom_backend_module``).

The first trainer process broadcasts buckets of bytes to every rollout worker; the others only take part in gathering.
"""

# pyright: reportMissingImports=false, reportPrivateImportUsage=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from verl.checkpoint_engine.base import (
    CheckpointEngine,
    CheckpointEngineRegistry,
    merge_weight_chunks,
    split_weight_chunks,
)

BACKEND = "swarm_gloo"
TIMEOUT = timedelta(seconds=600)
ALIGNED = 16
"""Bytes at which a tensor may begin in a bucket, whatever its type."""


@CheckpointEngineRegistry.register(BACKEND)
class GlooCheckpointEngine(CheckpointEngine):
    """One broadcast group a hand-over: a replica may have died, or be new."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_size = bucket_size
        self._is_master = is_master
        self._store: Any = None
        self._group: Any = None
        self._rank = -1

    def prepare(self) -> dict[str, Any] | None:
        """The master opens a store on a free port and says where."""
        if not self._is_master:
            return None
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return {"host": host, "port": self._store.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Rank 0 is the first trainer process, -1 are the others, then come the rollout workers."""
        size = 1 + rollout_world_size

        def given(ranks: list[int]) -> dict[str, list[Any]]:
            return {
                "rank": ranks,
                "world_size": [size] * len(ranks),
                "master": [metadata[0]] * len(ranks),
            }

        trainers = given([0] + [-1] * (actor_wg_world_size - 1))
        return trainers, given(list(range(1, size)))

    def init_process_group(self, rank: int, world_size: int, master: dict[str, Any]) -> None:
        """Join the group; blocks until all have."""
        self._rank = rank
        if rank < 0:
            return
        if self._store is None:
            self._store = dist.TCPStore(master["host"], master["port"], is_master=False)
        self._group = dist.ProcessGroupGloo(self._store, rank, world_size, TIMEOUT)

    def finalize(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    @torch.no_grad()
    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        """Broadcast all weights; a process that is not the master only walks through them, for gathering takes all."""
        if self._rank < 0:
            for _ in weights:
                pass
            return
        bucket = torch.empty(self._bucket_size, dtype=torch.uint8)
        told: list[Any] = []
        used = 0
        async for meta, chunk in split_weight_chunks(weights, self._bucket_size):
            if used + meta.chunk_size > self._bucket_size:
                await self._send(told, bucket[:used])
                told, used = [], 0
            meta.offset = used
            bucket[used : used + meta.chunk_size].copy_(chunk)
            told.append(meta)
            used = -(-(used + meta.chunk_size) // ALIGNED) * ALIGNED
        await self._send(told, bucket[: min(used, self._bucket_size)])
        await self._send([], bucket[:0])

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield name and tensor; a tensor is valid until the next one."""
        async for named in merge_weight_chunks(self._chunks(), self._bucket_size):
            yield named

    async def _chunks(self) -> AsyncIterator[tuple[Any, torch.Tensor]]:
        while True:
            size = torch.zeros(2, dtype=torch.int64)
            await self._broadcast(size)
            header = torch.empty(int(size[0]), dtype=torch.uint8)
            await self._broadcast(header)
            told: Iterable[Any] = pickle.loads(header.numpy().tobytes())  # noqa: S301 - from our own trainer
            if not told:
                return
            bucket = torch.empty(int(size[1]), dtype=torch.uint8)
            await self._broadcast(bucket)
            for meta in told:
                yield meta, bucket[meta.offset : meta.offset + meta.chunk_size]

    async def _send(self, told: list[Any], bucket: torch.Tensor) -> None:
        header = torch.frombuffer(bytearray(pickle.dumps(told)), dtype=torch.uint8)
        await self._broadcast(torch.tensor([header.numel(), bucket.numel()]))
        await self._broadcast(header)
        if told:
            await self._broadcast(bucket)

    async def _broadcast(self, tensor: torch.Tensor) -> None:
        await asyncio.to_thread(lambda: self._group.broadcast(tensor, 0).wait())
