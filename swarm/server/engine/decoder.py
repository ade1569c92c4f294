"""Key/value cache and the one forward pass of sampling: ``extend`` rows by some tokens, for prefill and decode together.

Inference only; knows nothing of requests. Everything but attention runs over one flat list of new tokens, without padding;
attention runs once a ``Part``. On a CPU the result of a row does not depend on which other rows share the call: matrix
products are kept above the size where the libraries switch to vector kernels (``MIN_ROWS``, ``MIN_PREFILL``), and attention
reads whole vectors of positions (``REACH_STEP``), the masked ones adding exact zeros.

Shape letters: N new tokens of a call, B rows of a part, T new tokens a row, S slots, M cached positions read, H query heads,
K key/value heads, G = H / K, E head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from swarm.server.engine.fused import FusedLayer, fuse, own
from swarm.server.engine.model import Llama

SCRATCH = 0  # this slot's contents are never read back; padding tokens write here
MIN_ROWS = 8
MIN_PREFILL = 8
REACH_STEP = 32  # a softmax sums in vector lanes: whole vectors keep the order when masked positions are appended
DENSE_SHARE = 0.6  # of a range of slots: above it, reading the whole range beats gathering


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that attend together; all of one new token (decode), or of several (prefill)."""

    slots: list[int]  # all different
    starts: list[
        int
    ]  # position of each row's first new token; what is cached before it is attended to
    ids: list[int]  # new ids, row after row
    lengths: list[int] | None = None  # how many of them each row has, at least one; None = one each


@dataclass(frozen=True, slots=True)
class _View:
    """How one part's attention finds its queries in the flat list and its keys in the cache."""

    first: int  # flat index of its first token
    count: int  # B
    width: int  # T
    reach: int  # cached positions read
    rows: Tensor  # [B] slots
    spread: (
        Tensor | None
    )  # [B * T] flat index of each (padded) query; None = the B tokens from ``first``
    back: Tensor | None  # flat order of the tokens in the padded result
    low: int  # slots [low, high) are read as one block; high 0 = gather ``rows``
    high: int
    scatter: bool  # the block holds other slots too, or in another order
    bias: Tensor  # [rows read, 1, G * T, M], -inf where hidden


@dataclass(frozen=True, slots=True)
class _Pass:
    """What every layer of one ``extend`` shares."""

    rows: Tensor  # [N] slot of each token
    positions: Tensor  # [N]
    turn: Tensor  # [N, 1, E / 2] complex rotations
    views: list[_View]


class Decoder:
    """A KV cache of ``slots`` sequences with ``capacity`` positions each, over a model's weights as of the last ``refresh``.

    Slots are numbered 1..slots. ``apart``: the weights are copies, so that the model may be trained while this samples;
    otherwise some are the model's own, and it may not change between a ``refresh`` and the next.
    """

    def __init__(self, model: Llama, *, slots: int, capacity: int, apart: bool = False) -> None:
        self.model = model
        self._apart = apart
        c = model.config
        self._device = model.head_weight().device
        # An odd number of steps: rows a power of two apart would share a few sets of the processor's caches.
        length = _round_up(capacity) | REACH_STEP
        # Keys and values side by side: one gather, one copy. Slots and heads fold into one batch axis as they lie.
        shape = (c.num_hidden_layers, slots + 1, c.num_key_value_heads, 2, length, c.head_dim)
        self._cache = torch.zeros(shape, device=self._device)
        self._steps = torch.arange(length, device=self._device)
        half = c.head_dim // 2
        self._turns = torch.complex(model.cos[:, :half], model.sin[:, :half])[:, None]
        self._groups = c.num_attention_heads // c.num_key_value_heads
        self._layers: list[FusedLayer] = []
        self.refresh()

    @torch.inference_mode()
    def refresh(self) -> None:
        """Read the model's weights again; call it after every update. The cache keeps what the former weights computed."""
        self._layers = [fuse(layer, self.model.config) for layer in self.model.model.layers]  # pyright: ignore[reportArgumentType]
        self._head = self.model.head_weight().detach().t()
        self._embedding = self.model.model.embed_tokens.weight.detach()
        self._norm = self.model.model.norm.weight.detach()
        if self._apart:
            self._layers = [own(layer) for layer in self._layers]
            self._norm, self._embedding = self._norm.clone(), self._embedding.clone()
            tied = self.model.config.tie_word_embeddings
            self._head = self._embedding.t() if tied else self._head.clone()

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of slot ``source`` into slot ``target``."""
        self._cache[:, target, :, :, :length] = self._cache[:, source, :, :, :length]

    @torch.inference_mode()
    def extend(self, parts: Sequence[Part]) -> Tensor:
        """Append tokens to slots and return the logits after each row's last one, [rows of all parts, vocab_size]."""
        tokens, last, work = self._plan(parts)
        eps = self.model.config.rms_norm_eps
        x = F.embedding(tokens, self._embedding)
        for layer, cache in zip(self._layers, self._cache, strict=True):
            normed = F.rms_norm(x, x.shape[1:], layer.attention_norm, eps)
            x = layer.output(x, self._attend(normed, layer, cache, work))
            normed = F.rms_norm(x, x.shape[1:], layer.mlp_norm, eps)
            x = layer.mlp(x, normed)
        picked = x if last is None else x.index_select(0, last)
        return F.rms_norm(picked, x.shape[1:], self._norm, eps) @ self._head

    def _plan(self, parts: Sequence[Part]) -> tuple[Tensor, Tensor | None, _Pass]:
        """Lay the parts' tokens out flat; returns ids [N], which of them are the last of a row (padded), and the rest."""
        tokens: list[int] = []
        rows: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        firsts: list[int] = []
        for part in parts:
            first = len(tokens)
            firsts.append(first)
            tokens += part.ids
            if part.lengths is None:
                rows += part.slots
                positions += part.starts
                last += range(first, len(tokens))
                continue
            for slot, start, length in zip(part.slots, part.starts, part.lengths, strict=True):
                rows += [slot] * length
                positions += range(start, start + length)
                last.append(len(rows) - 1)
        padding = max(0, MIN_ROWS - len(tokens))
        one_each = len(last) == len(tokens)
        tokens += [0] * padding
        rows += [SCRATCH] * padding
        positions += [0] * padding
        flat = torch.tensor([tokens, rows, positions], device=self._device)
        ends = None if one_each else self._index(last + [0] * max(0, MIN_ROWS - len(last)))
        views = [self._view(part, first, flat) for part, first in zip(parts, firsts, strict=True)]
        return flat[0], ends, _Pass(flat[1], flat[2], self._turns[flat[2]], views)

    def _view(self, part: Part, first: int, flat: Tensor) -> _View:
        if part.lengths is None:
            return self._decode_view(part, first, flat)
        count, lengths = len(part.slots), part.lengths
        reach = _round_up(max(map(add, part.starts, lengths)))
        width = max(MIN_PREFILL, *lengths)
        spread, back, at = [first] * (count * width), [0] * sum(lengths), 0
        for row, length in enumerate(lengths):
            begin, end = row * width, row * width + length
            spread[begin:end] = range(first + at, first + at + length)
            back[at : at + length] = range(begin, end)
            at += length
        bias = self._bias(self._index(part.starts)[:, None] + self._steps[:width], reach)
        rows, spread_at, back_at = map(self._index, (part.slots, spread, back))
        return _View(
            first, count, width, reach, rows, spread_at, back_at, 0, 0, scatter=False, bias=bias
        )

    def _decode_view(self, part: Part, first: int, flat: Tensor) -> _View:
        count, reach = len(part.slots), _round_up(max(part.starts) + 1)
        rows, visible = flat[1, first : first + count], flat[2, first : first + count, None]
        low, high = min(part.slots), max(part.slots) + 1
        if count < DENSE_SHARE * (high - low):
            low = high = 0
        scatter = high > 0 and part.slots != list(range(low, high))
        if scatter:
            every = visible.new_zeros(high - low, 1)
            every[rows - low] = visible
            visible = every
        bias = self._bias(visible, reach)
        return _View(first, count, 1, reach, rows, None, None, low, high, scatter, bias)

    def _bias(self, visible: Tensor, reach: int) -> Tensor:
        """[B, T] last visible position of each query -> what to add to its scores, [B, 1, G * T, M]."""
        hidden = self._steps[:reach] > visible[:, :, None]
        bias = torch.zeros(hidden.shape, device=self._device).masked_fill_(hidden, -torch.inf)
        # Heads of a group are rows of one product; for one token a row the bias broadcasts over them.
        return (bias if visible.shape[1] == 1 else bias.repeat(1, self._groups, 1))[:, None]

    def _attend(self, x: Tensor, layer: FusedLayer, cache: Tensor, work: _Pass) -> Tensor:
        """Write the new keys and values, attend over the cache; [N, D] -> [N, H * E]."""
        c = self.model.config
        heads, kv_heads, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        qkv = layer.project(x).view(len(x), heads + 2 * kv_heads, size)
        pairs = layer.norm_heads(qkv[:, : heads + kv_heads]).unflatten(2, (-1, 2))
        turned = torch.view_as_real(torch.view_as_complex(pairs) * work.turn).flatten(2)
        new = torch.stack((turned[:, heads:], qkv[:, heads + kv_heads :]), 2)
        cache[work.rows, :, :, work.positions] = new
        q = turned[:, :heads].unflatten(1, (kv_heads, self._groups))  # [N, K, G, E]
        out = [_read(q, cache, view) for view in work.views]
        read = sum(len(part) for part in out)
        if read < len(x):  # padding tokens attend to nothing
            out.append(x.new_zeros(len(x) - read, heads * size))
        return out[0] if len(out) == 1 else torch.cat(out)

    def _index(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self._device)


def _read(q: Tensor, cache: Tensor, view: _View) -> Tensor:
    """Softmax attention of one part; q [N, K, G, E] -> [tokens of the part, H * E]."""
    kv_heads, groups, size = q.shape[1:]
    if view.spread is None:
        q = q[view.first : view.first + view.count]
    else:
        q = q.index_select(0, view.spread).view(view.count, view.width, kv_heads, groups, size)
        q = q.permute(0, 2, 3, 1, 4).reshape(view.count, kv_heads, -1, size)  # [B, K, G * T, E]
    if view.high:
        read = cache[view.low : view.high, :, :, : view.reach]
    else:
        # index_select copies a slice several times faster than indexing with a tensor does
        read = cache[:, :, :, : view.reach].index_select(0, view.rows)
    if view.scatter:
        every = q.new_zeros(len(read), *q.shape[1:])
        every[view.rows - view.low] = q
        q = every
    scores = q @ read[:, :, 0].transpose(-1, -2)
    out = scores.add_(view.bias).softmax(-1) @ read[:, :, 1]
    if view.scatter:
        out = out[view.rows - view.low]
    if view.back is None:
        return out.reshape(view.count, -1)
    out = out.view(view.count, kv_heads, groups, view.width, size).permute(0, 3, 1, 2, 4)
    return out.reshape(view.count * view.width, -1).index_select(0, view.back)


def _round_up(positions: int) -> int:
    return -(-positions // REACH_STEP) * REACH_STEP
