"""A layer's weights laid out for sampling: joined matrices, so that one product does the work of two or three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

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

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys, values of [N, D], heads in that order, [N, (H + 2 K) * E]."""
        return _affine(x, self.qkv, self.qkv_bias)

    def output(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual ``x`` plus the output projection of ``attended``."""
        return _add_affine(x, attended, self.out, self.out_bias)

    def mlp(self, x: Tensor, normed: Tensor) -> Tensor:
        """The residual ``x`` plus the gated MLP of ``normed``."""
        gate, up = _affine(normed, self.gate_up, self.gate_up_bias).chunk(2, -1)
        return _add_affine(x, F.silu(gate).mul_(up), self.down, self.down_bias)


def fuse(layer: Layer, config: LlamaConfig) -> FusedLayer:
    """Copy a layer's current weights into the layout of sampling."""
    attention, mlp = layer.self_attn, layer.mlp
    size = config.head_dim
    order = torch.arange(size).view(2, -1).t().flatten()  # 0, E/2, 1, E/2 + 1, ...
    parts: list[tuple[Tensor, Tensor | None]] = []
    for linear, scale in ((attention.q_proj, size**-0.5), (attention.k_proj, 1.0)):
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
    )


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
