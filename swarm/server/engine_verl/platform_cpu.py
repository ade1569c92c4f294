"""Everything that verl and vLLM need to run without an accelerator: for tests. On a GPU nothing here is imported.

verl loads this module in each of its processes through its own extension point (``VERL_USE_EXTERNAL_MODULES``, which
``child`` sets). What is changed, and why:

1. A platform named ``cpu`` is registered: verl ships platforms of accelerators only.
2. verl's FSDP engine is looked up as for CUDA (``VERL_ENGINE_DEVICE``): its registry knows accelerators only.
3. The process group is gloo: verl's default backend string names NCCL.
4. vLLM's CPU linear layers keep their plain weight: they pack it for oneDNN and drop it after loading, and a later weight sync
   finds no parameter to write to (it hangs on "'Parameter' object has no attribute 'weight_loader'").
5. Weights that verl keeps in host memory (a reference model) are not pinned: a CPU build of torch refuses to.
6. A value model is loaded with torch's own attention: verl asks for flash-attention by name, which has no CPU build.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(types.ModuleType):
    """What verl asks of ``torch.cuda``, answered for a CPU."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _zero(*_args: Any, **_kwargs: Any) -> int:
    return 0


def _device_module() -> types.ModuleType:
    module = _Device("verl_cpu_device")
    for name in (
        "set_device",
        "synchronize",
        "empty_cache",
        "ipc_collect",
        "reset_peak_memory_stats",
    ):
        setattr(module, name, _nothing)
    for name in ("memory_allocated", "memory_reserved"):
        setattr(module, name, _zero)
        setattr(module, f"max_{name}", _zero)
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "mem_get_info": lambda *_a, **_k: (0, 0),
        "get_rng_state": lambda *_a, **_k: torch.get_rng_state(),
        "set_rng_state": lambda state, *_a, **_k: torch.set_rng_state(state),
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_device_name": lambda *_a, **_k: "CPU",
    }
    for name, answer in answers.items():
        setattr(module, name, answer)
    return module


DEVICE = _device_module()


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """A CPU, to Ray a GPU: verl's placement counts accelerators, so the CPU pretends to be one."""

    device_name = property(lambda _: "cpu")
    vendor_name = property(lambda _: "cpu")
    device_module = property(lambda _: DEVICE)

    def is_available(self) -> bool:
        """Return True."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Return whether there is no accelerator."""
        return not torch.cuda.is_available()

    def current_device(self) -> Any:
        """Return the device."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """Return one."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: a CPU's work is done when the call returns."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing."""

    def empty_cache(self) -> None:
        """Do nothing."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """Return nothing known."""
        return (None, None)

    def communication_backend_name(self) -> str:
        """Return gloo."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return the variable that Ray sets for its (pretended) GPUs."""
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """Mark nothing."""
        yield

    def profiler_start(self) -> None:
        """Do nothing."""

    def profiler_stop(self) -> None:
        """Do nothing."""

    def ray_resource_name(self) -> str:
        """Return the resource that placement counts."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return what keeps Ray from setting visible devices."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        """Return the options of an actor."""
        return {"num_gpus": num_gpus}

    def is_ipc_supported(self) -> bool:
        """Return False: weights go through shared memory."""
        return False

    def cudart(self) -> None:
        """Return None."""


def _use_gloo() -> None:
    import verl.utils.distributed as distributed

    original = distributed.initialize_global_process_group_ray

    def start(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = start


def keep_plain_weights() -> None:
    """Let vLLM's CPU linear layers multiply with the weight as it is; called in the processes that hold the rollout model."""
    import vllm.model_executor.layers.utils as layers

    def dispatch(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    layers.dispatch_cpu_unquantized_gemm = dispatch


def _pin_nothing() -> None:
    """Replace the policy before verl imports it by name; a subclass, because torch asks what it is an instance of."""
    import torch.distributed.fsdp as fsdp

    class Unpinned(fsdp.CPUOffloadPolicy):
        def __init__(self, pin_memory: bool = True) -> None:
            super().__init__(pin_memory=False)

    fsdp.CPUOffloadPolicy = Unpinned


def _load_value_models() -> None:
    """Replace the function in its module: verl imports it where it calls it."""
    import verl.utils.model as models

    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            torch_dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    models.load_valuehead_model = load


_use_gloo()
_pin_nothing()
_load_value_models()
if "vllm" in sys.modules:
    keep_plain_weights()
