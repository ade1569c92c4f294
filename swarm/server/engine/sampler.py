"""Continuous batching: requests come and go between ticks, every tick moves all of them one token.

A tick is one pass of the model: newcomers' prompts (a piece of them, when long) beside one token of everyone else. What a
request samples depends on its prompt, its noise key and the weights, not on who shares the batch (see ``decoder``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter

import torch
from torch import Tensor

from swarm.server.constraints import Grammars, Matcher
from swarm.server.engine.decoder import MIN_PREFILL, Decoder, Part
from swarm.server.engine.model import Llama
from swarm.server.engine.running import Decode, Running
from swarm.server.engine.shaping import shape
from swarm.server.engine.slots import SlotTable
from swarm.server.ports import Chunk, GenerateRequest

CHUNK_TOKENS = 64  # of one row's prompt per tick: a long prompt does not stall the others for long
PREFILL_TOKENS = 4096  # padded tokens that attend together
MAX_SLOTS = 128
SLOT = attrgetter("slot")
CACHE_BYTES = 1 << 30


def slot_count(model: Llama, capacity: int) -> int:
    """Slots that fit ``CACHE_BYTES``, at least one and at most ``MAX_SLOTS``."""
    c = model.config
    position = 2 * 4 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim
    return max(1, min(MAX_SLOTS, CACHE_BYTES // (position * capacity)))


class Sampler:
    """Samples requests from a model. Not thread-safe; the owner calls ``tick`` until ``busy`` is false.

    Args:
        model: Its weights are read anew after ``weights_changed``.
        decode: Turns ids into text, for stop strings.
        slots: Requests sampled at once; None = by memory, see ``slot_count``. More wait in order of arrival.
        version: Policy version of the weights. When given, the sampler works on copies of them, requests survive
            ``weights_changed``, and chunks tell the version of each token. None: none of that.
    """

    def __init__(
        self,
        model: Llama,
        decode: Decode,
        *,
        slots: int | None = None,
        version: int | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        self._grammars = grammars
        self._model = model
        self._decode = decode
        self._capacity = model.max_len
        count = slots or slot_count(model, self._capacity)
        self._table = SlotTable(count, self._capacity)
        self._version = version
        self._decoder = Decoder(
            model, slots=count, capacity=self._capacity, apart=version is not None
        )
        self._waiting: deque[GenerateRequest] = deque()
        self._running: dict[str, Running] = {}
        self._device = model.head_weight().device

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._running)

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request. One without room for a single token ends by length at its first tick, with no token."""
        self._waiting.append(request)

    def abort(self, request_id: str) -> list[Chunk]:
        """End a request now; returns its final chunk (what was sampled so far), or nothing for an unknown id."""
        running = self._running.pop(request_id, None)
        if running is not None:
            self._table.release(running.slot, running.cached_ids())
            if running.request.stream:
                return [Chunk(request_id, [], [], "abort")]
            return [running.whole("abort")]
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                return [Chunk(request_id, [], [], "abort")]
        return []

    def weights_changed(self, version: int = 0) -> None:
        """Sample with the model's present weights from now on; ``version`` is theirs. Cached prefixes are forgotten.

        Without a version at construction nothing may be running. With one, running requests go on: what they have cached
        is kept, and only they use it; those that have sampled nothing yet read their prompt again.
        """
        self._table.forget()
        self._decoder.refresh()
        if self._version is not None:
            self._version = version
            for running in self._running.values():
                running.outlive(version)

    def tick(self) -> list[Chunk]:
        """Admit what fits, move every request one step, and return the chunks that came of it."""
        chunks = self._admit()
        if not self._running:
            return chunks
        decoding = [r for r in self._running.values() if not r.pending]
        parts = [_next_tokens(decoding)] if decoding else []
        ready = list(decoding)
        at = list(range(len(decoding)))
        row = len(decoding)
        if row < len(self._running):
            for group in _prefill_groups([r for r in self._running.values() if r.pending]):
                parts.append(self._feed(group))
                for running in group:
                    if not running.pending:
                        ready.append(running)
                        at.append(row)
                    row += 1
        for running in decoding:
            running.cached += 1
        logits = self._decoder.extend(parts)
        if not ready:
            return chunks
        # Rows of padding, and prompts of which more is to come, have logits that nobody wants.
        wanted = logits[: len(at)] if at[-1] == len(at) - 1 else logits[self._tensor(at)]
        return chunks + self._sample(ready, wanted)

    def _feed(self, group: list[Running]) -> Part:
        """Take the next piece of every prompt of the group."""
        pieces = [r.pending[:CHUNK_TOKENS] for r in group]
        starts = [r.cached for r in group]
        for running, piece in zip(group, pieces, strict=True):
            running.cached += len(piece)
            running.pending = running.pending[len(piece) :]
            self._table.note(running.slot, running.cached_ids())
        ids = [token for piece in pieces for token in piece]
        return Part([r.slot for r in group], starts, ids, [len(piece) for piece in pieces])

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
            matcher = self._matcher(request)
            self._running[request.request_id] = Running(
                request, place.slot, place.ready, room, self._version, matcher
            )
        return refused

    def _matcher(self, request: GenerateRequest) -> Matcher | None:
        if not request.params.grammar or self._grammars is None:
            return None
        return self._grammars.matcher(request.params.grammar)

    @torch.inference_mode()
    def _sample(self, group: list[Running], logits: Tensor) -> list[Chunk]:
        """Draw one token for each of ``group``, whose logits are the rows of ``logits``."""
        plain = all(r.plain for r in group)
        if not plain:
            logits = self._shaped(group, logits)
        logprobs = torch.log_softmax(logits, -1)
        uniform = self._tensor([r.noise.next() for r in group], torch.float64)[:, None]
        picked = _inverse_cdf(logits, uniform)
        if not plain:
            greedy = self._tensor([[r.greedy] for r in group], torch.bool)
            picked = torch.where(greedy, logprobs.argmax(-1, keepdim=True), picked)
            self._note_top(group, logprobs)
        values = logprobs.gather(1, picked)[:, 0].tolist()
        chunks: list[Chunk] = []
        for running, token, value in zip(group, picked[:, 0].tolist(), values, strict=True):
            finish = running.accept(token, value, self._decode)
            if finish is not None:
                del self._running[running.request.request_id]
                self._table.release(running.slot, running.cached_ids())
            if running.request.stream:
                chunks.append(running.last_token(finish))
            elif finish is not None:
                chunks.append(running.whole(finish))
        return chunks

    def _shaped(self, group: list[Running], logits: Tensor) -> Tensor:
        """At each request's temperature, and shaped where it asks for more."""
        scaled = logits / self._tensor([[r.temperature] for r in group], torch.float32)
        if not any(r.shaped for r in group):
            return scaled
        rows = zip(group, logits, scaled, strict=True)
        return torch.stack([shape(raw, r) if r.shaped else row for r, raw, row in rows])

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


def _inverse_cdf(logits: Tensor, uniform: Tensor) -> Tensor:
    """First id whose cumulative probability exceeds ``uniform`` (scaled to the sum); [B, V], [B, 1] -> [B, 1]."""
    cumulative = torch.softmax(logits, -1, dtype=torch.float64).cumsum(-1)
    target = uniform * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[1] - 1)


def _next_tokens(decoding: list[Running]) -> Part:
    decoding.sort(key=SLOT)  # a block of slots in order is read as it lies
    return Part(
        slots=[r.slot for r in decoding],
        starts=[r.cached for r in decoding],
        ids=[r.ids[-1] for r in decoding],
    )


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
