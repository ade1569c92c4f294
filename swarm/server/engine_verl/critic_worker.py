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

from swarm.server.engine_verl.undo import Undoable


class SwarmCritic(Undoable, TinkerTrainingWorker):
    """verl's training worker with a value head on the model."""

    @property
    def _trained(self) -> Any:
        return self.engine

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def begin(self, seed: int) -> None:
        """Load the model; its new head depends on the seed alone, so that a run that begins again begins alike."""
        torch.manual_seed(seed)
        self.reset()
