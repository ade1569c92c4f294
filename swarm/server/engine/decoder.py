"""Key/value cache and the one forward pass of sampling: ``extend`` rows by some tokens, for prefill and decode alike.

Inference only; knows nothing of requests. On a CPU the result of a row does not depend on which other rows share the
call: matrix products are kept above the size where the libraries switch to vector kernels (``MIN_ROWS``,
``MIN_PREFILL``), and attention reads whole vectors of positions (``REACH_STEP``), the masked ones adding exact zeros.

Shape letters: B rows of this call, T new tokens a row, S slots, M cached positions read, H query heads, K key/value
heads, G = H / K, E head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from swarm.server.engine.model import Layer, Llama, rotate

SCRATCH = 0  # this slot's contents are never read back; padding rows write here
MIN_ROWS = 8
MIN_PREFILL = 8
REACH_STEP = 32  # a softmax sums in vector lanes: whole vectors keep the order when masked positions are appended
DENSE_SHARE = (
    0.6  # of the slots below the highest active one: above it, reading all beats gathering some
)


@dataclass(frozen=True)
class FusedLayer:
    """A layer's matrices joined so that one product does the work of two or three."""

    qkv: Tensor
    qkv_bias: Tensor | None
    gate_up: Tensor
    gate_up_bias: Tensor | None
    layer: Layer


@dataclass(frozen=True)
class Window:
    """What every layer of one ``extend`` shares: where to write, what to read, what to hide."""

    rows: Tensor  # [B, 1] slot of each row
    positions: Tensor  # [B, T]
    cos: Tensor  # [B, T, 1, E]
    sin: Tensor
    reach: int  # cached positions read
    dense: int  # slots read as one block, 0 = gather the rows
    bias: Tensor  # [B or dense, 1, T (x G), M], -inf where hidden


class Decoder:
    """A KV cache of ``slots`` sequences with ``capacity`` positions each, over a model's current weights.

    Slots are numbered 1..slots. ``capacity`` counts real tokens; padding may be written past it.
    """

    def __init__(self, model: Llama, *, slots: int, capacity: int, max_chunk: int) -> None:
        self.model = model
        self.slots = slots
        self.capacity = capacity
        c = model.config
        device = model.head_weight().device
        length = _round_up(capacity + max_chunk)
        shape = (slots + 1, c.num_key_value_heads, length, c.head_dim)
        self.keys = [torch.zeros(shape, device=device) for _ in range(c.num_hidden_layers)]
        self.values = [torch.zeros(shape, device=device) for _ in range(c.num_hidden_layers)]
        self.steps = torch.arange(max(length, slots + 1), device=device)
        self.layers: list[FusedLayer] = []
        self.refresh()

    @torch.inference_mode()
    def refresh(self) -> None:
        """Read the model's weights again; call it after every update (the cache's contents are then void)."""
        self.layers = [_fuse(layer) for layer in self.model.model.layers]  # pyright: ignore[reportArgumentType]

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of slot ``source`` into slot ``target``."""
        for cache in (*self.keys, *self.values):
            cache[target, :, :length] = cache[source, :, :length]

    @torch.inference_mode()
    def extend(self, tokens: Tensor, start: Tensor, rows: Tensor, last: Tensor) -> Tensor:
        """Append tokens to slots and return the logits after each row's last one.

        Args:
            tokens: [B, T] ids; a row shorter than T is padded on the right with any id.
            start: [B] position of each row's first new token; what is cached before it is attended to.
            rows: [B] slots, all different except ``SCRATCH``.
            last: [B] index into T of each row's last real token.

        Returns:
            Logits [B, vocab_size], float32.
        """
        window = self._window(tokens, start, rows)
        x = self.model.model.embed_tokens(tokens)
        for index, fused in enumerate(self.layers):
            x = self._layer(x, fused, index, window)
        count = len(rows)
        picked = x[self.steps[:count], last]
        if count < MIN_ROWS:
            picked = F.pad(picked, (0, 0, 0, MIN_ROWS - count))
        return F.linear(self.model.model.norm(picked), self.model.head_weight())[:count]

    def _window(self, tokens: Tensor, start: Tensor, rows: Tensor) -> Window:
        count, length = tokens.shape
        positions = start[:, None] + self.steps[:length]
        reach = _round_up(int(start.max()) + length)
        highest = int(rows.max()) + 1
        dense = highest if length == 1 and count >= DENSE_SHARE * highest else 0
        known = positions.clamp(max=self.model.max_len - 1)  # padding may run past the tables
        visible_until = positions
        if dense:
            visible_until = positions.new_zeros(dense, 1)
            visible_until[rows] = positions
        hidden = self.steps[:reach] > visible_until[:, :, None]
        bias = torch.zeros(hidden.shape, device=tokens.device).masked_fill_(hidden, -torch.inf)
        groups = self.model.config.num_attention_heads // self.model.config.num_key_value_heads
        return Window(
            rows=rows[:, None],
            positions=positions,
            cos=self.model.cos[known][:, :, None],
            sin=self.model.sin[known][:, :, None],
            reach=reach,
            dense=dense,
            bias=(bias if length == 1 else bias.repeat(1, groups, 1))[:, None],
        )

    def _layer(self, x: Tensor, fused: FusedLayer, index: int, window: Window) -> Tensor:
        layer = fused.layer
        attended = self._attend(layer.input_layernorm(x), fused, index, window)
        x = x + layer.self_attn.o_proj(attended)
        hidden = F.linear(layer.post_attention_layernorm(x), fused.gate_up, fused.gate_up_bias)
        gate, up = hidden.chunk(2, -1)
        return x + layer.mlp.down_proj(F.silu(gate) * up)

    def _attend(self, x: Tensor, fused: FusedLayer, index: int, window: Window) -> Tensor:
        """Write the new keys and values, attend over the cache; [B, T, D] -> [B, T, H * E]."""
        c = self.model.config
        heads, kv_heads, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        count, length, _ = x.shape
        qkv = F.linear(x, fused.qkv, fused.qkv_bias)
        qkv = qkv.view(count, length, heads + 2 * kv_heads, size)
        turned = rotate(qkv[:, :, : heads + kv_heads], window.cos, window.sin)
        keys, values = self.keys[index], self.values[index]
        keys[window.rows, :, window.positions] = turned[:, :, heads:]
        values[window.rows, :, window.positions] = qkv[:, :, heads + kv_heads :]
        q = turned[:, :, :heads].reshape(count, length, kv_heads, -1, size)
        q = q.permute(0, 2, 3, 1, 4).reshape(count, kv_heads, -1, size)  # [B, K, G * T, E]
        out = self._read(q, keys, values, window)
        out = out.view(count, kv_heads, -1, length, size).permute(0, 3, 1, 2, 4)
        return out.reshape(count, length, heads * size)

    def _read(self, q: Tensor, keys: Tensor, values: Tensor, window: Window) -> Tensor:
        """Softmax attention of q over the cached positions; [B, K, G * T, E] in and out."""
        scale = q.shape[-1] ** -0.5
        rows = window.rows[:, 0]
        if window.dense:
            every = q.new_zeros(window.dense, *q.shape[1:])
            every[rows] = q
            q = every
            k, v = (
                keys[: window.dense, :, : window.reach],
                values[: window.dense, :, : window.reach],
            )
        else:
            # index_select copies a slice several times faster than indexing with a tensor does
            k = keys[:, :, : window.reach].index_select(0, rows)
            v = values[:, :, : window.reach].index_select(0, rows)
        scores = (q * scale) @ k.transpose(-1, -2)
        out = scores.add_(window.bias).softmax(-1) @ v
        return out[rows] if window.dense else out


def _round_up(positions: int) -> int:
    return -(-positions // REACH_STEP) * REACH_STEP


def _fuse(layer: Layer) -> FusedLayer:
    qkv = (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
    gate_up = (layer.mlp.gate_proj, layer.mlp.up_proj)
    return FusedLayer(
        qkv=torch.cat(tuple(p.weight for p in qkv)),
        qkv_bias=_join_bias(*qkv),
        gate_up=torch.cat(tuple(p.weight for p in gate_up)),
        gate_up_bias=_join_bias(*gate_up),
        layer=layer,
    )


def _join_bias(*projections: nn.Linear) -> Tensor | None:
    biases: list[Tensor] = [p.bias for p in projections if isinstance(p.bias, Tensor)]
    return torch.cat(biases) if biases else None
