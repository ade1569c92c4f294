"""One request while it is being sampled: its slot, its noise, what it has sampled, and when it must stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from swarm.server.constraints import Matcher
from swarm.server.engine.noise import Noise
from swarm.server.ports import Chunk, GenerateRequest, SamplingParams

Finish = Literal["stop", "length", "abort"]
Decode = Callable[[list[int]], str]
PLAIN = SamplingParams()


class Running:
    """A request in a slot. ``pending`` are ids of the prompt that the cache does not hold yet; after them, one sampled id at a time."""

    def __init__(
        self,
        request: GenerateRequest,
        slot: int,
        ready: int,
        room: int,
        version: int | None = None,
        matcher: Matcher | None = None,
    ) -> None:
        """``version``: of the weights that sample; None = chunks do not tell it. ``matcher``: the constraint, if any."""
        self.request = request
        self.slot = slot
        self.cached = ready  # positions whose keys and values the slot holds
        self.pending = request.prompt_ids[ready:]
        self.temperature = request.temperature if request.temperature > 0 else 1.0
        self.greedy = request.temperature <= 0
        self.shaped = request.params != PLAIN
        self.plain = (
            self.temperature == 1.0
            and not (self.greedy or self.shaped)
            and not request.top_logprobs
        )
        self.matcher = matcher
        self.kept: list[list[int]] = []  # one a token, when something truncates
        self.noise = Noise(request.noise_key)
        self.limit = min(request.max_tokens, room)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.top: list[list[tuple[int, float]]] = []
        self.versions: list[int] = []  # one a token, when told
        self._version = version
        self._mixed = False
        self._stop_ids = frozenset(request.stop_token_ids)
        # A token holds at least one byte, so a stop string ends within this many last tokens.
        self._stop_window = max((len(s.encode()) for s in request.stop), default=0)

    def accept(self, token: int, logprob: float, decode: Decode) -> Finish | None:
        """Append a sampled token; returns why the answer ends with it, or None when it goes on."""
        self.ids.append(token)
        if self.matcher is not None:
            self.matcher.consume(token)
        self.logprobs.append(logprob)
        if self._version is not None:
            self.versions.append(self._version)
        ends = token in self._stop_ids and not self.request.params.ignore_eos
        if ends or (self._stop_window and self._hits_stop_string(decode)):
            return "stop"
        return "length" if len(self.ids) >= self.limit else None

    def outlive(self, version: int) -> None:
        """Go on under new weights: from the start when nothing is sampled yet, else on top of what the old ones cached."""
        self._version = version
        if self.ids:
            self._mixed = True
        else:
            self.cached, self.pending = 0, self.request.prompt_ids

    def cached_ids(self) -> list[int]:
        """The ids whose keys and values the slot holds: the prompt, then all sampled ids but the newest.

        Empty when some of them are of other weights than the current ones: nobody else may build on those.
        """
        return [] if self._mixed else (self.request.prompt_ids + self.ids)[: self.cached]

    def last_token(self, finish: Finish | None) -> Chunk:
        """A chunk with the newest token only, for a streamed request."""
        return Chunk(
            self.request.request_id,
            self.ids[-1:],
            self.logprobs[-1:],
            finish,
            self.top[-1:],
            self.versions[-1:],
            self.kept[-1:],
        )

    def whole(self, finish: Finish) -> Chunk:
        """The final chunk of a request that is not streamed: everything."""
        return Chunk(
            self.request.request_id,
            self.ids,
            self.logprobs,
            finish,
            self.top,
            self.versions,
            self.kept,
        )

    def _hits_stop_string(self, decode: Decode) -> bool:
        tail = decode(self.ids[-self._stop_window :])
        return any(stop in tail for stop in self.request.stop)
