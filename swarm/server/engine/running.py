"""One request while it is being sampled: its slot, its noise, what it has sampled, and when it must stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from swarm.server.engine.noise import Noise
from swarm.server.ports import Chunk, GenerateRequest

Finish = Literal["stop", "length", "abort"]
Decode = Callable[[list[int]], str]


class Running:
    """A request in a slot. ``pending`` are ids of the prompt that the cache does not hold yet; after them, one sampled id at a time."""

    def __init__(self, request: GenerateRequest, slot: int, ready: int, room: int) -> None:
        self.request = request
        self.slot = slot
        self.cached = ready  # positions whose keys and values the slot holds
        self.pending = request.prompt_ids[ready:]
        self.temperature = request.temperature if request.temperature > 0 else 1.0
        self.greedy = request.temperature <= 0
        self.plain = self.temperature == 1.0 and not self.greedy and not request.top_logprobs
        self.noise = Noise(request.noise_key)
        self.limit = min(request.max_tokens, room)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.top: list[list[tuple[int, float]]] = []
        self._stop_ids = frozenset(request.stop_token_ids)
        # A token holds at least one byte, so a stop string ends within this many last tokens.
        self._stop_window = max((len(s.encode()) for s in request.stop), default=0)

    def accept(self, token: int, logprob: float, decode: Decode) -> Finish | None:
        """Append a sampled token; returns why the answer ends with it, or None when it goes on."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in self._stop_ids or (self._stop_window and self._hits_stop_string(decode)):
            return "stop"
        return "length" if len(self.ids) >= self.limit else None

    def cached_ids(self) -> list[int]:
        """The ids whose keys and values the slot holds: the prompt, then all sampled ids but the newest."""
        return (self.request.prompt_ids + self.ids)[: self.cached]

    def last_token(self, finish: Finish | None) -> Chunk:
        """A chunk with the newest token only, for a streamed request."""
        return Chunk(
            self.request.request_id, self.ids[-1:], self.logprobs[-1:], finish, self.top[-1:]
        )

    def whole(self, finish: Finish) -> Chunk:
        """The final chunk of a request that is not streamed: everything."""
        return Chunk(self.request.request_id, self.ids, self.logprobs, finish, self.top)

    def _hits_stop_string(self, decode: Decode) -> bool:
        tail = decode(self.ids[-self._stop_window :])
        return any(stop in tail for stop in self.request.stop)
