"""Changes of logits that the caller asked for and that do not make tokens impossible: bias and penalties.

Sampler and trainer use the same code, so that a trained token's probability is the one that it was drawn with. Truncation is
apart: which tokens it left is recorded when they are drawn, because new weights would leave others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from swarm.server.ports import SamplingParams

KEPT_INVERTED = -1
"""First entry of a list of kept ids that names those that were *not* kept."""


def adjusts(params: SamplingParams) -> bool:
    """Whether ``adjusted`` would change anything."""
    return bool(
        params.logit_bias
        or params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1.0
    )


def adjusted(
    logits_V: Tensor,  # noqa: N803
    params: SamplingParams,
    prompt: Sequence[int],
    answer: Sequence[int],
) -> Tensor:
    """Return the logits with bias and penalties, before any temperature; differentiable, the input stays as it is.

    Repetition (Keskar et al. 2019, CTRL, section 4.1): the logit of every id seen in prompt or answer is divided by the
    penalty when positive, else multiplied. Frequency and presence (OpenAI): count and occurrence in the answer are subtracted.
    Then the bias is added.
    """
    if not adjusts(params):
        return logits_V
    out = logits_V
    if params.repetition_penalty != 1.0:
        seen = _mask(out, {*prompt, *answer})
        penalised = torch.where(
            out > 0, out / params.repetition_penalty, out * params.repetition_penalty
        )
        out = torch.where(seen, penalised, out)
    if params.presence_penalty or params.frequency_penalty:
        counts = _vector(out, Counter(answer))
        present = (counts > 0).to(out.dtype)
        out = out - params.frequency_penalty * counts - params.presence_penalty * present
    if params.logit_bias:
        out = out + _vector(out, params.logit_bias)
    return out


def keep_only(logits_V: Tensor, kept: Sequence[int]) -> Tensor:  # noqa: N803
    """Return the logits with everything that ``kept`` (see ``Chunk.kept``) leaves out at minus infinity; empty keeps all."""
    if not kept:
        return logits_V
    inverted = kept[0] == KEPT_INVERTED
    mask = _mask(logits_V, set(kept[1:] if inverted else kept))
    return logits_V.masked_fill(mask if inverted else ~mask, float("-inf"))


def kept_of(allowed_V: Tensor) -> list[int]:  # noqa: N803
    """Return the shorter description of a boolean vector of what is possible, as ``Chunk.kept`` has it; all = empty."""
    total, count = allowed_V.numel(), int(allowed_V.sum())
    if count == total:
        return []
    if count <= total - count:
        return allowed_V.nonzero()[:, 0].tolist()
    return [KEPT_INVERTED, *(~allowed_V).nonzero()[:, 0].tolist()]


def _mask(like: Tensor, ids: set[int]) -> Tensor:
    mask = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
    known = [i for i in ids if 0 <= i < like.shape[-1]]
    mask[torch.tensor(known, dtype=torch.long, device=like.device)] = True
    return mask


def _vector(like: Tensor, values: Counter[int] | dict[int, float]) -> Tensor:
    vector = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    known = {i: float(v) for i, v in values.items() if 0 <= i < like.shape[-1]}
    index = torch.tensor(list(known), dtype=torch.long, device=like.device)
    vector[index] = torch.tensor(list(known.values()), dtype=like.dtype, device=like.device)
    return vector
