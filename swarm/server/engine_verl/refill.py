"""Weights for one rollout replica of several that share the trainer's accelerators: the others' adapters sit this one out."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Bystander:
    """Stands in for an adapter whose replica has the weights already. It walks through them, for gathering takes every rank."""

    def __init__(self) -> None:
        """As verl's adapters; the trainer sets it."""
        self.sleep_level = 0

    async def resume(self, tags: Sequence[str]) -> None:
        """Wake nothing: the replica is awake."""

    async def release(self) -> None:
        """Put nothing to sleep."""

    async def update_weights(self, weights: Any, **_rest: Any) -> None:
        """Send nothing."""
        from verl.workers.rollout.utils import ensure_async_iterator

        async for _ in ensure_async_iterator(weights):
            pass


def adapter_for(own: Any, replica: int) -> Any:
    """Return this rank's adapter when it belongs to ``replica``, with its dead server forgotten; else a bystander."""
    if own.replica_rank != replica:
        return Bystander()
    own.server_handle = None
    return own
