"""A rank's trained weights and optimizer state in host memory, so that a move can be undone.

Knows torch, not verl's backends: FSDP2 has one module and one optimizer, Megatron lists of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def modules_of(engine: Any) -> list[Any]:
    """Return the modules of verl's engine: Megatron keeps one a pipeline chunk."""
    return list(engine.module) if isinstance(engine.module, list | tuple) else [engine.module]


def local(tensor: Any) -> Any:
    """Return this rank's part of a tensor that is cut over ranks; the tensor itself otherwise."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Snapshot:
    """What trains, copied when it is made; frozen weights (the base under LoRA) cannot move and are not copied."""

    def __init__(self, engine: Any) -> None:
        self._weights = [_to_host(p) for p in _trained(engine)]
        self._states = [
            {name: _to_host(value) for name, value in state.items()} for state in _states(engine)
        ]

    def put_back(self, engine: Any) -> None:
        """Write everything back in place, wherever it lies now; moments that did not exist yet are forgotten."""
        with torch.no_grad():
            for parameter, kept in zip(_trained(engine), self._weights, strict=True):
                local(parameter).copy_(kept)
            for state, kept in zip(_states(engine), self._states, strict=True):
                for name in set(state) - set(kept):
                    del state[name]
                for name, value in kept.items():
                    if torch.is_tensor(state[name]):
                        local(state[name]).copy_(value)
                    else:
                        state[name] = value


def finite(engine: Any) -> bool:
    """Return whether every trained weight of this rank is finite."""
    return all(bool(local(p).isfinite().all()) for p in _trained(engine))


def _trained(engine: Any) -> Iterator[Any]:
    """Weights of the modules, then what optimizers hold instead of them (Megatron's float32 copies)."""
    modules = modules_of(engine)
    _cut_again(modules)
    own = [p for module in modules for p in module.parameters()]
    seen = {id(p) for p in own if not p.requires_grad}
    groups = (group for one in _optimizers(engine.optimizer) for group in one.param_groups)
    held = (p for group in groups for p in group["params"])
    for parameter in (*own, *held):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield parameter


def _cut_again(modules: list[Any]) -> None:
    """Let FSDP2 give up whole weights: the outermost module keeps its own after a forward pass without a backward one."""
    from torch.distributed.fsdp import FSDPModule

    for part in (part for module in modules for part in module.modules()):
        if isinstance(part, FSDPModule):
            part.reshard()


def _states(engine: Any) -> Iterator[dict[str, Any]]:
    """The optimizer's state of each parameter; empty before its first step."""
    for one in _optimizers(engine.optimizer):
        for group in one.param_groups:
            for parameter in group["params"]:
                yield one.state.get(parameter, {})


def _optimizers(optimizer: Any) -> list[Any]:
    """Optimizers of torch inside what a backend calls its optimizer."""
    chained = getattr(optimizer, "chained_optimizers", None)
    if chained:
        return [inner for one in chained for inner in _optimizers(one)]
    inner = getattr(optimizer, "optimizer", None)
    return [optimizer] if inner is None else _optimizers(inner)


def _to_host(value: Any) -> Any:
    return local(value).detach().cpu().clone() if torch.is_tensor(value) else value
