"""The value model's worker of one accelerator: verl's split primitives, and a way back.

Runs as a Ray actor, one a rank; every method is called on all ranks at once.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from typing import Any

import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers_tinker import TinkerTrainingWorker

from swarm.server.engine_verl.snapshots import Snapshot, finite


class SwarmCritic(TinkerTrainingWorker):
    """verl's training worker with a value head on the model."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._kept: Snapshot | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def begin(self, seed: int) -> None:
        """Load the model; its new head depends on the seed alone, so that a run that begins again begins alike."""
        torch.manual_seed(seed)
        self.reset()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def keep(self) -> None:
        """Copy what trains of this rank to host memory, until ``put_back`` or ``forget``."""
        self._kept = Snapshot(self.engine)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def put_back(self) -> None:
        """Undo every move since ``keep``; without one do nothing."""
        if self._kept is not None:
            self._kept.put_back(self.engine)
        self._kept = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def forget(self) -> None:
        """Free what ``keep`` copied."""
        self._kept = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finite(self) -> bool:
        """Return whether every trained weight of this rank is finite."""
        return finite(self.engine)
