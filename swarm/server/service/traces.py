"""Traces of episodes that are no longer in memory: the journal's calls with what became of each of their tokens.

The journal writes calls when an episode ends, before anyone knows their fate; it is put together here from the verdicts of the
batch that consumed the episode, or from why it was left out.
"""

from __future__ import annotations

from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.protocol.states import EpisodeKind, FateReason, TokenFate
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import CallVerdict, EpisodeRecord
from swarm.server.redaction import Redactor
from swarm.server.tracking.account import (
    Fate,
    dropped,
    masked,
    rolled_back,
    whole_episode,
    with_fates,
)

TEXTS = ("messages", "tools", "reply", "requested", "raw_request", "unknown", "tag")
"""Fields of a call in which a secret may stand."""


def past_trace(journal: Journal, episode_id: str, *, calls: bool) -> EpisodeTrace:
    """Return an episode of any incarnation as the journal knows it; calls that were pruned are not there any more.

    Raises:
        NotFoundError: No such episode.
    """
    record = journal.episode(episode_id, calls=calls)
    if record.calls:
        record.calls = _judged(journal, record)
    return record.trace()


def redacted(trace: EpisodeTrace, redactor: Redactor) -> EpisodeTrace:
    """Return a trace as it may be shown: secrets are hidden in all that is text. Token ids stay as they were sampled."""
    calls = [_redacted_call(call, redactor) for call in trace.calls]
    return trace.model_copy(update={"calls": calls, "reason": redactor.text(trace.reason)})


def _redacted_call(call: CallRecord, redactor: Redactor) -> CallRecord:
    shown = {name: redactor.value(getattr(call, name)) for name in TEXTS}
    changed = {name: value for name, value in shown.items() if value is not getattr(call, name)}
    return call.model_copy(update=changed) if changed else call


def _judged(journal: Journal, record: EpisodeRecord) -> list[CallRecord]:
    if record.kind is EpisodeKind.EVAL:
        return with_fates(record.calls, whole_episode(record.calls, dropped(FateReason.EVAL)))
    if record.consumed_step is not None:
        return _consumed(journal, record)
    if not record.dropped:
        return record.calls  # in the pool, or prepared: not decided yet
    reason = FateReason(record.dropped)
    fate = masked(reason) if reason is FateReason.ZERO_ADVANTAGE else dropped(reason)
    return with_fates(record.calls, whole_episode(record.calls, fate, record.details.agents))


def _consumed(journal: Journal, record: EpisodeRecord) -> list[CallRecord]:
    verdicts = journal.verdicts(record.episode_id)
    if len(verdicts) != len(record.calls):
        return record.calls  # of a journal that did not keep them
    fates = [Fate(TokenFate(v.fate), FateReason(v.reason)) for v in verdicts]
    pairs = zip(record.calls, verdicts, strict=True)
    calls = with_fates(record.calls, fates, [_spread(call, verdict) for call, verdict in pairs])
    step = journal.step_of(record.episode_id)
    return rolled_back(calls) if step is not None and step.rolled_back else calls


def _spread(call: CallRecord, verdict: CallVerdict) -> list[float]:
    if verdict.advantage is not None:
        return [verdict.advantage] * len(call.sampled_ids)
    return verdict.advantages
