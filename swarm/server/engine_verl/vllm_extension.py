"""What runs inside vLLM's own workers: verl's weight receiver, and the name of the weights that are served."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from swarm.server.engine_verl.weights import checksum


class SwarmExtension(vLLMColocateWorkerExtension):
    """Named to vLLM by its dotted path (``worker_extension_cls``)."""

    def served_fingerprint(self) -> str:
        """Return the checksum of this worker's weights. vLLM fuses some of them, so it differs from the trainer's; it changes when that does."""
        return checksum(self.model_runner.model.named_parameters())
