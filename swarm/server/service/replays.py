"""What the trainer needs of how a row's spans were sampled, beyond their temperature."""

from __future__ import annotations

from collections.abc import Sequence

from swarm.protocol.records import CallRecord
from swarm.server.ports import SamplingParams, SpanSampling
from swarm.server.tracking.merge import MergedRow

RECOMPUTED = ("logit_bias", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""Applied anew by the trainer, from the ids; truncation is not: see ``SpanSampling.kept``."""
PLAIN = SamplingParams()


def replays_of(row: MergedRow, calls: Sequence[CallRecord]) -> list[SpanSampling]:
    """Return one a span, or nothing when all of the row was sampled plainly."""
    spans = zip(row.spans, row.call_indices, row.starts, strict=True)
    found = [
        _replay(calls[index], span.start - start, start, span.end - span.start)
        for span, index, start in spans
    ]
    return found if any(replay.kept or replay.params != PLAIN for replay in found) else []


def _replay(call: CallRecord, answer_at: int, start: int, length: int) -> SpanSampling:
    """``answer_at`` is where the call's answer begins in the row; its prompt lies right before it."""
    told = {name: call.applied[name] for name in RECOMPUTED if name in call.applied}
    bias = told.get("logit_bias")
    if bias:
        told["logit_bias"] = {int(token): value for token, value in bias.items()}
    return SpanSampling(
        params=SamplingParams(**told),
        kept=call.kept[start : start + length],
        prompt_start=max(0, answer_at - len(call.prompt_ids)),
        answer_start=answer_at,
    )
