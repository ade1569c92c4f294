"""Continuous batching: requests come and go between ticks, every tick moves all of them one token.

A tick first prefills what newcomers lack, then decodes one token for everyone else. What a request samples depends on
its prompt, its noise key and the weights, not on who shares the batch (see ``decoder``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

from swarm.server.engine.decoder import MIN_PREFILL, MIN_ROWS, SCRATCH, Decoder
from swarm.server.engine.model import Llama
from swarm.server.engine.running import Decode, Running
from swarm.server.engine.slots import SlotTable
from swarm.server.ports import Chunk, GenerateRequest

CHUNK_TOKENS = 64  # of one row's prompt per tick: a long prompt does not stall the others for long
PREFILL_TOKENS = 4096  # padded tokens of one prefill call
MAX_SLOTS = 128
CACHE_BYTES = 1 << 30


def slot_count(model: Llama, capacity: int) -> int:
    """Slots that fit ``CACHE_BYTES``, at least one and at most ``MAX_SLOTS``."""
    c = model.config
    position = 2 * 4 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim
    return max(1, min(MAX_SLOTS, CACHE_BYTES // (position * (capacity + CHUNK_TOKENS))))


class Sampler:
    """Samples requests from a model. Not thread-safe; the owner calls ``tick`` until ``busy`` is false.

    Args:
        model: Its weights are read anew after ``weights_changed``.
        decode: Turns ids into text, for stop strings.
        slots: Requests sampled at once; None = by memory, see ``slot_count``. More wait in order of arrival.
    """

    def __init__(self, model: Llama, decode: Decode, *, slots: int | None = None) -> None:
        self._model = model
        self._decode = decode
        self._capacity = model.max_len
        count = slots or slot_count(model, self._capacity)
        self._table = SlotTable(count, self._capacity)
        self._decoder = Decoder(model, slots=count, capacity=self._capacity, max_chunk=CHUNK_TOKENS)
        self._waiting: deque[GenerateRequest] = deque()
        self._running: dict[str, Running] = {}
        self._device = model.head_weight().device

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._waiting or self._running)

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request. One without room for a single token ends by length at its first tick, with no token."""
        self._waiting.append(request)

    def abort(self, request_id: str) -> list[Chunk]:
        """End a request now; returns its final chunk (what was sampled so far), or nothing for an unknown id."""
        running = self._running.pop(request_id, None)
        if running is not None:
            self._table.release(running.slot)
            if running.request.stream:
                return [Chunk(request_id, [], [], "abort")]
            return [running.whole("abort")]
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                return [Chunk(request_id, [], [], "abort")]
        return []

    def weights_changed(self) -> None:
        """Drop everything computed with the old weights. Nothing may be running."""
        self._table.forget()
        self._decoder.refresh()

    def tick(self) -> list[Chunk]:
        """Admit what fits, move every request one step, and return the chunks that came of it."""
        chunks = self._admit()
        prefilling = [r for r in self._running.values() if r.prefilling]
        decoding = [r for r in self._running.values() if not r.prefilling]
        for group in _prefill_groups(prefilling):
            chunks += self._advance(group, max(MIN_PREFILL, _longest(group)))
        if decoding:
            chunks += self._advance(decoding, 1)
        return chunks

    def _admit(self) -> list[Chunk]:
        refused: list[Chunk] = []
        while self._waiting and self._table.free:
            request = self._waiting.popleft()
            room = self._capacity - len(request.prompt_ids)
            if not request.prompt_ids or min(room, request.max_tokens) < 1:
                refused.append(Chunk(request.request_id, [], [], "length"))
                continue
            place = self._table.place(request.prompt_ids, request.affinity)
            if place.copied:
                self._decoder.copy_prefix(place.source, place.slot, place.copied)
            self._running[request.request_id] = Running(request, place.slot, place.ready, room)
        return refused

    def _advance(self, group: list[Running], width: int) -> list[Chunk]:
        """Feed up to ``width`` pending ids of every request of the group; sample where nothing is pending after it."""
        padding = max(0, MIN_ROWS - len(group)) if width == 1 else 0
        rows = [r.slot for r in group] + [SCRATCH] * padding
        start = [self._table.length(r.slot) for r in group] + [0] * padding
        fed = [r.pending[:width] for r in group]
        tokens = [ids + [0] * (width - len(ids)) for ids in fed] + [[0]] * padding
        last = [len(ids) - 1 for ids in fed] + [0] * padding
        logits = self._decoder.extend(*(self._tensor(v) for v in (tokens, start, rows, last)))
        ready: list[int] = []
        for index, (running, ids) in enumerate(zip(group, fed, strict=True)):
            self._table.append(running.slot, ids)
            running.pending = running.pending[len(ids) :]
            if not running.pending:
                ready.append(index)
        return self._sample([group[i] for i in ready], logits, ready) if ready else []

    @torch.inference_mode()
    def _sample(self, group: list[Running], logits: Tensor, at: list[int]) -> list[Chunk]:
        """Draw one token for each of ``group``, whose logits are rows ``at``."""
        temperature = self._tensor([[r.temperature] for r in group], torch.float32)
        logprobs = torch.log_softmax(logits[self._tensor(at)] / temperature, -1)
        uniform = [[0.0 if r.greedy else r.noise.next()] for r in group]
        picked = _inverse_cdf(logprobs, self._tensor(uniform, torch.float64))
        greedy = self._tensor([[r.greedy] for r in group], torch.bool)
        picked = torch.where(greedy, logprobs.argmax(-1, keepdim=True), picked)
        values = logprobs.gather(1, picked)[:, 0].tolist()
        self._note_top(group, logprobs)
        chunks: list[Chunk] = []
        for running, token, value in zip(group, picked[:, 0].tolist(), values, strict=True):
            chunks += self._accept(running, token, value)
        return chunks

    def _accept(self, running: Running, token: int, logprob: float) -> Iterable[Chunk]:
        finish = running.accept(token, logprob, self._decode)
        if finish is not None:
            del self._running[running.request.request_id]
            self._table.release(running.slot)
        if running.request.stream:
            return [running.last_token(finish)]
        return [] if finish is None else [running.whole(finish)]

    def _note_top(self, group: list[Running], logprobs: Tensor) -> None:
        most = max(r.request.top_logprobs for r in group)
        if not most:
            return
        values, ids = logprobs.topk(min(most, logprobs.shape[1]), -1)
        for running, row_values, row_ids in zip(group, values.tolist(), ids.tolist(), strict=True):
            if running.request.top_logprobs:
                pairs = list(zip(row_ids, row_values, strict=True))
                running.top.append(pairs[: running.request.top_logprobs])

    def _tensor(self, values: object, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self._device)


def _inverse_cdf(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """First id whose cumulative probability exceeds ``uniform`` (scaled to the sum); [B, V], [B, 1] -> [B, 1]."""
    cumulative = logprobs.to(torch.float64).exp().cumsum(-1)
    target = uniform * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).clamp_(max=logprobs.shape[1] - 1)


def _longest(group: list[Running]) -> int:
    return min(CHUNK_TOKENS, max(len(r.pending) for r in group))


def _prefill_groups(prefilling: list[Running]) -> Iterable[list[Running]]:
    """Cut the newcomers, shortest first, into groups of at most ``PREFILL_TOKENS`` padded tokens."""
    group: list[Running] = []
    for running in sorted(prefilling, key=lambda r: len(r.pending)):
        width = max(MIN_PREFILL, min(CHUNK_TOKENS, len(running.pending)))
        if group and width * (len(group) + 1) > PREFILL_TOKENS:
            yield group
            group = []
        group.append(running)
    if group:
        yield group
