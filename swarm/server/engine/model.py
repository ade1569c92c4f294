"""The Llama-layout transformer in plain torch, with the parameter names of Hugging Face's ``LlamaForCausalLM``.

Qwen2 (biases on queries, keys, values) and Qwen3 (a norm on each query and key head) are the same layout with one thing
more. It is the trainer's view of the weights (whole sequences, causal); ``decoder`` reads the same parameters for sampling.
Shape letters: B rows, T positions, D hidden size, H query heads, K key/value heads, E head size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from swarm.protocol.errors import ConfigError

MODEL_TYPES = ("llama", "qwen2", "qwen3")
"""What ``model_type`` may say."""


@dataclass(frozen=True)
class LlamaConfig:
    """The keys of a Hugging Face ``llama``, ``qwen2`` or ``qwen3`` config.json that shape the computation."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    output_bias: bool = False
    """Attention's output projection has a bias too (Llama and Qwen3 with ``attention_bias``; never Qwen2)."""
    qk_norm: bool = False
    """RMS norm over each query and key head before the rotation (Qwen3)."""

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> LlamaConfig:
        """Read a parsed config.json; absent optional keys take the architecture's defaults.

        Raises:
            ConfigError: Another architecture, a rope scaling or activation not built here, or a missing key.
        """
        _refuse_what_is_not_built(raw)
        kind = raw["model_type"]
        bias = bool(raw.get("attention_bias", False)) and kind != "qwen2"
        try:
            heads = int(raw["num_attention_heads"])
            hidden = int(raw["hidden_size"])
            return cls(
                vocab_size=int(raw["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(raw["intermediate_size"]),
                num_hidden_layers=int(raw["num_hidden_layers"]),
                num_attention_heads=heads,
                num_key_value_heads=int(raw.get("num_key_value_heads") or heads),
                head_dim=int(raw.get("head_dim") or (128 if kind == "qwen3" else hidden // heads)),
                max_position_embeddings=int(
                    raw.get("max_position_embeddings", 2048 if kind == "llama" else 32768)
                ),
                rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                rope_theta=float(_rope(raw).get("rope_theta", 10000.0)),
                tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
                attention_bias=bias or kind == "qwen2",
                mlp_bias=bool(raw.get("mlp_bias", False)) and kind == "llama",
                output_bias=bias,
                qk_norm=kind == "qwen3",
            )
        except KeyError as error:
            raise ConfigError(
                f"The model's config.json lacks {error.args[0]!r}.",
                hint="Export the model again with save_pretrained; this key shapes the network.",
            ) from error

    @classmethod
    def from_folder(cls, folder: Path) -> LlamaConfig:
        """Read ``folder/config.json``; see ``from_dict`` for the errors."""
        return cls.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def _rope(raw: dict[str, Any]) -> dict[str, Any]:
    """Both spellings: ``rope_theta`` + ``rope_scaling`` (older), ``rope_parameters`` (newer)."""
    rope: dict[str, Any] = {"rope_theta": raw.get("rope_theta", 10000.0)}
    rope.update(raw.get("rope_scaling") or {})
    rope.update(raw.get("rope_parameters") or {})
    return rope


def _refuse_what_is_not_built(raw: dict[str, Any]) -> None:
    kind = raw.get("model_type")
    if kind not in MODEL_TYPES:
        raise ConfigError(
            f"The torch engine cannot load model_type {kind!r}: it is built for {', '.join(map(repr, MODEL_TYPES))}.",
            hint="Use a model in Llama layout, or another engine.",
        )
    if raw.get("use_sliding_window") or "sliding_attention" in (raw.get("layer_types") or ()):
        raise ConfigError(
            "The torch engine does not build sliding-window attention.",
            hint="Use a model whose layers all attend to the whole context (use_sliding_window false).",
        )
    rope = _rope(raw)
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise ConfigError(
            f"The torch engine does not build rope_type {rope_type!r}.",
            hint="Use a model with plain rotary embeddings (rope_scaling null).",
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise ConfigError(
            f"The torch engine does not build hidden_act {raw['hidden_act']!r}.",
            hint="Models in Llama layout use 'silu'.",
        )


class RMSNorm(nn.Module):
    """Scale by the root mean square; no mean, no bias."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_tables(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each [length, head_dim], halves repeated (RoFormer; Llama's order)."""
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(length).float(), inverse)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding along the last axis; cos and sin broadcast against ``x``."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Attention(nn.Module):
    """Grouped-query causal self-attention."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            c.num_attention_heads,
            c.num_key_value_heads,
            c.head_dim,
        )
        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(c.hidden_size, q_size, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, kv_size, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, kv_size, bias=c.attention_bias)
        self.o_proj = nn.Linear(q_size, c.hidden_size, bias=c.output_bias)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps) if c.qk_norm else None
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps) if c.qk_norm else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, T, D] in and out; every position sees itself and what is before it."""
        rows, length, _ = x.shape
        q = self.q_proj(x).view(rows, length, self.heads, self.head_dim)
        k = self.k_proj(x).view(rows, length, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(rows, length, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q.transpose(1, 2), cos, sin), rotate(k.transpose(1, 2), cos, sin)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=c.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm attention, then pre-norm MLP, each with a residual."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = MLP(c)
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, T, D] in and out."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Embedding, layers and the last norm; named ``model`` in the state dict, as in Hugging Face files."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


class Llama(nn.Module):
    """The whole model; ``hidden`` for training, ``forward`` for all logits.

    Positions go up to ``max_len`` (None = the config's ``max_position_embeddings``).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: LlamaConfig, *, max_len: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.max_len = max_len or config.max_position_embeddings
        self.model = Trunk(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        cos, sin = rope_tables(self.max_len, config.head_dim, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def head_weight(self) -> Tensor:
        """Output matrix [vocab_size, D]: the embedding itself when tied."""
        if self.config.tie_word_embeddings:
            return self.model.embed_tokens.weight
        return self.lm_head.weight

    def hidden(self, ids_B_T: Tensor) -> Tensor:  # noqa: N803
        """Last hidden states [B, T, D]. Rows may be padded on the right: no position sees what is after it."""
        length = ids_B_T.shape[1]
        x = self.model.embed_tokens(ids_B_T)
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x)

    def forward(self, ids_B_T: Tensor) -> Tensor:  # noqa: N803
        """Logits [B, T, vocab_size]."""
        return F.linear(self.hidden(ids_B_T), self.head_weight())

    def parameter_count(self) -> int:
        """Trainable numbers, the tied matrix once."""
        return sum(p.numel() for p in self.parameters())
