"""The engine's process: ``python -m swarm.server.engine_verl.child --fd N``, the same loop and wire as the embedded engine's.

It is the driver of a Ray session; when the front goes it ends at once, and with it all that it started.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, cast

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine.child import main
from swarm.server.engine_verl import dependencies, placement, reaping
from swarm.server.engine_verl.nonces import nonce_of
from swarm.server.model_files import resolve_model

if TYPE_CHECKING:
    from swarm.server.engine.torch_engine import TorchEngine
    from swarm.server.engine.wire import Boot

logger = logging.getLogger(__name__)

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "VERL_ENGINE_VENDOR": "swarm",
}
"""Nobody outside hears of the run; workers without a GPU of their own still see the accelerators; verl's registry of training
engines prefers ours (``fsdp_engine``) to its own."""


def boot(message: Boot) -> TorchEngine:
    """Make the engine that a Boot message asks for.

    Raises:
        ConfigError: a package is missing or of an untested version, or the configuration cannot be met.
    """
    config = TrainConfig.model_validate_json(message.config_json)
    resolve_model(config.model.path)  # a misspelt path fails before the slow imports
    dependencies.require(config.verl.rollout)
    nonce = nonce_of(dict(os.environ))
    reaping.reap(nonce, address=config.verl.ray_address)
    device = _device(config)
    variables = _variables(device)
    os.environ.update(variables)
    placement.join_ray(config.verl, nonce, device=device, variables=variables)
    from swarm.server.engine_verl.engine import VerlEngine

    engine = VerlEngine(config, checkpoint=message.checkpoint, device=device)
    return cast("TorchEngine", engine)


def _device(config: TrainConfig) -> str:
    """``cuda`` on a machine with one, or with a cluster elsewhere; else ``cpu``."""
    import torch

    if torch.cuda.is_available() or (
        config.verl.ray_address and not os.environ.get("VERL_PLATFORM")
    ):
        return "cuda"
    if config.verl.strategy != "fsdp2":
        raise ConfigError(
            f"verl.strategy {config.verl.strategy!r} needs GPUs, and this machine has none.",
            hint="Use 'fsdp2', or name a cluster in verl.ray_address.",
        )
    return "cpu"


def _variables(device: str) -> dict[str, str]:
    """Environment of every process of the engine, of what is not set already."""
    wanted = dict(QUIET)
    if device == "cpu":
        # platform_cpu imports torch and verl; its table is needed before them.
        wanted |= {
            "VERL_USE_EXTERNAL_MODULES": "swarm.server.engine_verl.platform_cpu",
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",  # more are slower beside a second busy process
        }
    return wanted | {name: os.environ[name] for name in wanted if name in os.environ}


if __name__ == "__main__":
    main(boot)
