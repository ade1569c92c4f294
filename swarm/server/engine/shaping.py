"""From the model's logits to the distribution that a request wants to be sampled from, when that is not the plain one.

Order as in vLLM's sampler: constraint, bias and penalties, end tokens, temperature, min-p, top-k, top-p. At least one token
always stays possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swarm.server.train.adjusting import adjusted, kept_of

if TYPE_CHECKING:
    from swarm.server.engine.running import Running

IMPOSSIBLE = float("-inf")


def shape(logits_V: Tensor, running: Running) -> Tensor:  # noqa: N803
    """Return the logits to sample the next token of ``running`` from; notes in it what truncation left possible."""
    params, request = running.request.params, running.request
    logits = adjusted(logits_V, params, request.prompt_ids, running.ids)
    if running.matcher is not None:
        logits = logits.masked_fill(~_unpacked(running.matcher.allowed(), logits), IMPOSSIBLE)
    if params.ignore_eos or len(running.ids) < params.min_tokens:
        logits = _without(logits, request.stop_token_ids)
    logits = logits / running.temperature
    for truncate in (_min_p, _top_k, _top_p):
        logits = truncate(logits, running)
    if params.truncates:
        running.kept.append(kept_of(logits > IMPOSSIBLE))
    return logits


def _unpacked(bits: bytes, like: Tensor) -> Tensor:
    """A bit mask (token 0 in the lowest bit) as booleans, one a logit."""
    packed = torch.frombuffer(bytearray(bits), dtype=torch.uint8)
    spread = (packed[:, None] >> torch.arange(8)) & 1
    return spread.flatten()[: like.shape[-1]].to(device=like.device, dtype=torch.bool)


def _without(logits: Tensor, ids: list[int]) -> Tensor:
    known = torch.tensor([i for i in ids if i < logits.shape[-1]], dtype=torch.long)
    rest = logits.index_fill(-1, known.to(logits.device), IMPOSSIBLE)
    return rest if bool((rest > IMPOSSIBLE).any()) else logits


def _min_p(logits: Tensor, running: Running) -> Tensor:
    """Tokens less likely than ``min_p`` times the likeliest go (Nguyen et al. 2024, arXiv:2407.01082)."""
    share = running.request.params.min_p
    if share <= 0:
        return logits
    probabilities = torch.softmax(logits, -1)
    return logits.masked_fill(probabilities < share * probabilities.max(), IMPOSSIBLE)


def _top_k(logits: Tensor, running: Running) -> Tensor:
    """Only the ``top_k`` likeliest stay, ties with the last of them included (Fan et al. 2018)."""
    count = running.request.params.top_k
    if not 0 < count < logits.shape[-1]:
        return logits
    least = logits.topk(count).values[-1]
    return logits.masked_fill(logits < least, IMPOSSIBLE)


def _top_p(logits: Tensor, running: Running) -> Tensor:
    """The likeliest stay until their mass reaches ``top_p``, the one that reaches it included (Holtzman et al. 2020)."""
    mass = running.request.params.top_p
    if mass >= 1:
        return logits
    ordered, order = logits.sort(descending=True, stable=True)
    before = torch.softmax(ordered, -1).cumsum(-1) - torch.softmax(ordered, -1)
    gone = before >= mass
    gone[0] = False
    return logits.masked_fill(torch.zeros_like(gone).scatter(0, order, gone), IMPOSSIBLE)
