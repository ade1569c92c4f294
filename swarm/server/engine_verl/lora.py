"""Weights with their LoRA adapters merged in: what samples, what the fingerprint names, and what an export holds.

verl merges inside the trainer's module and rounds to bfloat16 on the way out (0.9.1). Here the product is formed in float32
beside the module, a layer at a time, and rounded once to the type of the weight that it is added to: nothing is put back later,
and the same adapters always give the same bits.
"""

# pyright: reportMissingImports=false
# peft comes with verl, into an environment of its own (make setup-verl).

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from swarm.protocol.errors import ConfigError

ADAPTER = "default"
"""The name that PEFT gives to an only adapter."""
MARKS = ("lora_", ".adapter_")


@dataclass(frozen=True)
class Layer:
    """One adapted layer: the names of its tensors in the state, and how they go together."""

    base: str
    down: str
    up: str
    scaling: float
    transposed: bool
    """Whether the weight is stored [in, out] (embeddings, GPT-2's layers) instead of [out, in]."""


def layers_of(module: Any) -> list[Layer]:
    """Return the adapted layers of a PEFT model, in its order; none of a model without adapters."""
    from peft.tuners.lora import LoraLayer

    found: list[Layer] = []
    for name, layer in module.named_modules():
        if not isinstance(layer, LoraLayer) or ADAPTER not in layer.scaling:
            continue
        embeds = ADAPTER in layer.lora_embedding_A
        kind, end = ("lora_embedding", "") if embeds else ("lora", ".weight")
        found.append(
            Layer(
                base=f"{name}.base_layer.weight",
                down=f"{name}.{kind}_A.{ADAPTER}{end}",
                up=f"{name}.{kind}_B.{ADAPTER}{end}",
                scaling=float(layer.scaling[ADAPTER]),
                transposed=embeds or bool(getattr(layer, "fan_in_fan_out", False)),
            )
        )
    return found


def check_untied(layers: list[Layer], named: Iterable[tuple[str, Any]]) -> None:
    """Refuse adapters on a weight that is used under a second name: training adapts one of its uses, merging would adapt both.

    ``named`` lists parameters with their duplicates (``named_parameters(remove_duplicate=False)``).

    Raises:
        ConfigError: names the weight, and its other name.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in named:
        names.setdefault(id(parameter), []).append(name)
    adapted = {layer.base for layer in layers}
    for shared in names.values():
        if len(shared) > 1 and adapted & set(shared):
            raise ConfigError(
                f"The weights {' and '.join(map(plain_name, shared))} are one, and cannot be adapted apart.",
                hint="Leave it out of actor_rollout_ref.model.target_modules.",
            )


def merged(
    state: Mapping[str, Any], layers: list[Layer], whole: Callable[[Any], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield (name without adapters, weight) for a PEFT model's state, in its order, one at a time.

    ``whole`` gathers a tensor that is cut over ranks; it is called on every rank in the same order. A weight keeps its type.

    Raises:
        ConfigError: an adapter that is no product of two matrices (``target_parameters``, a bias): it cannot be merged here.
    """
    by_base = {layer.base: layer for layer in layers}
    used = {name for layer in layers for name in (layer.down, layer.up)}
    strange = [n for n in state if any(mark in n for mark in MARKS) and n not in used]
    if strange or any(layer.base not in state for layer in layers):
        raise ConfigError(
            f"The adapter {(strange or ['of a layer without a weight'])[0]!r} cannot be merged.",
            hint="Adapt linear layers and embeddings: actor_rollout_ref.model.target_modules, without target_parameters.",
        )
    for name, tensor in state.items():
        if name in used:
            continue
        weight = whole(tensor)
        if name in by_base:
            weight = _with(by_base[name], weight, state, whole)
        yield plain_name(name), weight


def plain_name(name: str) -> str:
    """Return the name that a parameter had before PEFT wrapped the model."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _with(layer: Layer, weight: Any, state: Mapping[str, Any], whole: Callable[[Any], Any]) -> Any:
    product = whole(state[layer.up]).float() @ whole(state[layer.down]).float()
    change = (product.T if layer.transposed else product) * layer.scaling
    return (weight.float() + change).to(weight.dtype)
