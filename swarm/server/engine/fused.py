"""A layer's weights laid out for sampling: joined matrices, so that one product does the work of two or three."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from swarm.server.engine.model import Layer, LlamaConfig


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """Weights of one layer; matrices are stored transposed, [in, out].

    Queries come scaled for attention. Within each query and key head the two numbers that rotate together are neighbours,
    so that a rotation is one complex product; scores do not depend on the order within a head.
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    qk_norm: Tensor | None
    """Scales of the norm over each query and key head, [H + K, E]; None = no such norm."""
    eps: float
    """Of that norm."""

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys, values of [N, D], heads in that order, [N, (H + 2 K) * E]."""
        return _affine(x, self.qkv, self.qkv_bias)

    def norm_heads(self, heads: Tensor) -> Tensor:
        """Queries and keys [N, H + K, E], normed where the architecture does so."""
        if self.qk_norm is None:
            return heads
        return F.rms_norm(heads, heads.shape[-1:], None, self.eps) * self.qk_norm

    def output(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual ``x`` plus the output projection of ``attended``."""
        return _add_affine(x, attended, self.out, self.out_bias)

    def mlp(self, x: Tensor, normed: Tensor) -> Tensor:
        """The residual ``x`` plus the gated MLP of ``normed``."""
        gate, up = _affine(normed, self.gate_up, self.gate_up_bias).chunk(2, -1)
        return _add_affine(x, F.silu(gate).mul_(up), self.down, self.down_bias)


def own(layer: FusedLayer) -> FusedLayer:
    """The same weights in memory of their own: an update of the model in place does not reach them. Strides are kept."""
    held = {field.name: getattr(layer, field.name) for field in fields(layer)}
    copied: dict[str, Any] = {
        name: v.clone() if isinstance(v, Tensor) else v for name, v in held.items()
    }
    return FusedLayer(**copied)


def fuse(layer: Layer, config: LlamaConfig) -> FusedLayer:
    """Copy a layer's current weights into the layout of sampling."""
    attention, mlp = layer.self_attn, layer.mlp
    size = config.head_dim
    order = torch.arange(size).view(2, -1).t().flatten()  # 0, E/2, 1, E/2 + 1, ...
    parts: list[tuple[Tensor, Tensor | None]] = []
    # A norm undoes any scale that comes before it: with one, its weights carry the scale of the queries.
    scale_q = 1.0 if config.qk_norm else size**-0.5
    for linear, scale in ((attention.q_proj, scale_q), (attention.k_proj, 1.0)):
        weight, bias = _parameters(linear)
        turned = None if bias is None else bias.view(-1, size)[:, order].flatten() * scale
        parts.append(
            (weight.view(-1, size, weight.shape[1])[:, order].flatten(0, 1) * scale, turned)
        )
    parts.append(_parameters(attention.v_proj))
    qkv, qkv_bias = _join(parts)
    gate_up, gate_up_bias = _join([_parameters(mlp.gate_proj), _parameters(mlp.up_proj)])
    out, out_bias = _parameters(attention.o_proj)
    down, down_bias = _parameters(mlp.down_proj)
    return FusedLayer(
        attention_norm=layer.input_layernorm.weight.detach(),
        qkv=qkv,
        qkv_bias=qkv_bias,
        out=out.t(),
        out_bias=out_bias,
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        gate_up_bias=gate_up_bias,
        down=down.t(),
        down_bias=down_bias,
        qk_norm=_head_norms(layer, config, order),
        eps=config.rms_norm_eps,
    )


def _head_norms(layer: Layer, config: LlamaConfig, order: Tensor) -> Tensor | None:
    q_norm, k_norm = layer.self_attn.q_norm, layer.self_attn.k_norm
    if q_norm is None or k_norm is None:
        return None
    q = q_norm.weight.detach()[order] * config.head_dim**-0.5
    k = k_norm.weight.detach()[order]
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    return torch.cat([q.expand(heads, -1), k.expand(kv_heads, -1)])


def _parameters(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    bias = cast("Tensor | None", linear.bias)
    return linear.weight.detach(), None if bias is None else bias.detach()


def _join(parts: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    biases = [bias for _, bias in parts if bias is not None]
    return torch.cat([weight for weight, _ in parts]).t(), torch.cat(biases) if biases else None


def _affine(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    return x @ matrix if bias is None else torch.addmm(bias, x, matrix)


def _add_affine(x: Tensor, y: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """``x + y @ matrix + bias``."""
    total = torch.addmm(x, y, matrix)
    return total if bias is None else total.add_(bias)
