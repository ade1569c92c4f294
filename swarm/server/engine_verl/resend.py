"""What is sent again of a request whose replica died under it, and which of the tokens that then come are told already. Pure.

Tokens in, tokens out: any replica can take over. A plain request goes on after its last told token, which is right whatever the
new replica would have sampled before it. One whose past matters to the sampler (a grammar, a stop string, penalties) is sampled
from its beginning, and must repeat what was told: same noise key, same weights.
"""

from __future__ import annotations

from typing import Any

import msgspec

from swarm.server.ports import GenerateRequest, SamplingParams

Piece = dict[str, Any]
"""``ids``, ``logprobs``, ``top`` (a list of pairs a token), ``versions``, ``finish`` (None until the end) and ``stop_reason``."""
BY_TOKEN = ("ids", "logprobs", "top", "versions")


class NotRepeated(Exception):
    """Another replica sampled other tokens than those that the front has already."""

    def __str__(self) -> str:
        """What the log says."""
        return "a stream could not be repeated after a death"


def rest_of(request: GenerateRequest, told: list[int]) -> tuple[GenerateRequest, int]:
    """Return what to send, and how many of the tokens that come will be told ones; nothing told: the request itself, 0."""
    if not told:
        return request, 0
    if request.stop or not _forgets(request.params):
        return request, len(told)
    rest = msgspec.structs.replace(
        request,
        prompt_ids=request.prompt_ids + told,
        max_tokens=request.max_tokens - len(told),
        noise_key=f"{request.noise_key}/after-{len(told)}",
    )
    return rest, 0


def news_of(piece: Piece, told: list[int], *, at: int, known: int) -> Piece:
    """Return the piece without what was told: it begins at token ``at`` of an answer whose first ``known`` are told.

    Raises:
        NotRepeated: a told token came back as another one.
    """
    again = max(0, min(len(piece["ids"]), known - at))
    if piece["ids"][:again] != told[at : at + again]:
        raise NotRepeated
    return piece | {name: piece[name][again:] for name in BY_TOKEN}


def _forgets(params: SamplingParams) -> bool:
    """Whether tokens sampled so far matter to the next ones through the model only."""
    return not (
        params.grammar
        or params.min_tokens
        or params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1
    )
