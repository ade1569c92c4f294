"""What a page says of one token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from swarm.plain import plain
from swarm.protocol.records import CallRecord
from swarm.protocol.states import FateReason, TokenFate
from swarm.server.page.authors import Author
from swarm.server.tracking.tokenizer import ChatTokenizer

REASONS: dict[FateReason, str] = {
    FateReason.NONE: "",
    FateReason.ZERO_ADVANTAGE: "all rewards of its group are equal",
    FateReason.GREEDY: "sampled at temperature 0, so its log-probability cannot be used",
    FateReason.AGENT_NOT_TRAINED: "its agent's key was made with train=False",
    FateReason.EXCLUDED_CALL: "the client tagged its call as not for training",
    FateReason.SAMPLING: "sampled in a way whose log-probability cannot be replayed",
    FateReason.CLIENT_MASK: "the client masked it, or gave it the weight 0",
    FateReason.ROLLED_BACK: "the update that held it was undone",
    FateReason.GUARD: "the episode guard found a broken answer (see the call's guard)",
    FateReason.CODE_CHANGED: "an older version of the client's code produced it",
    FateReason.ABANDONED: "nobody filled its group any more",
    FateReason.STALE: "sampled too many policy versions ago",
    FateReason.NOT_COMMITTED: "prepared with other servers and never committed",
    FateReason.ABORTED_CALL: "its call ended before the answer was complete",
    FateReason.EPISODE_ABORTED: "its episode was aborted",
    FateReason.EPISODE_EXPIRED: "its episode passed a deadline",
    FateReason.LEFTOVER: "finished, but not part of the batch that was taken",
    FateReason.GROUP_DROPPED: "its group lost a member and was dropped",
    FateReason.EVAL: "evaluation never trains",
}
CONTEXT = "context"
UNDECIDED = "undecided"
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class TokenView:
    """One token, ready to be written; numbers as numbers, None where there are none."""

    position: int
    """Within the prompt and answer of its call, from 0."""
    token_id: int
    text: str
    """Nothing in it is unprintable; line ends are kept."""
    author: Author
    mask: str
    """``trained``, ``masked``, ``dropped``, ``context`` (of the prompt) or ``undecided``."""
    why: str
    logprob: float | None = None
    advantage: float | None = None
    version: int | None = None
    """Policy version that sampled it."""


def prompt_tokens(
    call: CallRecord, first: int, authors: Sequence[Author], tokenizer: ChatTokenizer | None
) -> Iterator[TokenView]:
    """Yield the prompt's tokens from position ``first``, one for each of ``authors``."""
    ids = call.prompt_ids[first : first + len(authors)]
    for offset, (token, author) in enumerate(zip(ids, authors, strict=True)):
        yield TokenView(
            position=first + offset,
            token_id=token,
            text=token_text(token, tokenizer),
            author=author,
            mask=CONTEXT,
            why="part of the prompt: never trained here",
        )


def sampled_tokens(
    call: CallRecord, first: int, end: int, tokenizer: ChatTokenizer | None
) -> Iterator[TokenView]:
    """Yield the answer's tokens ``first`` to ``end`` (counted within the answer) with what became of each."""
    for i in range(first, min(end, len(call.sampled_ids))):
        mask, why = _fate(call, i)
        token = call.sampled_ids[i]
        yield TokenView(
            position=len(call.prompt_ids) + i,
            token_id=token,
            text=token_text(token, tokenizer),
            author=Author.SAMPLED,
            mask=mask,
            why=why,
            logprob=_at(call.logprobs, i),
            advantage=_at(call.advantages, i),
            version=_at(call.token_versions, i) if call.token_versions else call.policy_version,
        )


def token_text(token: int, tokenizer: ChatTokenizer | None) -> str:
    """Return how a token reads: bytes that are no text, and all that is unprintable, spelled out. Without a tokenizer its id."""
    if tokenizer is None:
        return f"[{token}]"
    raw = tokenizer.token_bytes(token)
    return plain(raw.decode("utf-8", errors="backslashreplace"), newlines=True)


def _fate(call: CallRecord, index: int) -> tuple[str, str]:
    if call.fate is None:
        return UNDECIDED, "no step has decided about it yet"
    if call.fate is TokenFate.TRAINED and _at(call.token_mask, index) is False:
        return TokenFate.MASKED.value, REASONS[FateReason.CLIENT_MASK]
    return call.fate.value, REASONS.get(call.fate_reason, call.fate_reason.value)


def _at(values: Sequence[ValueT], index: int) -> ValueT | None:
    return values[index] if index < len(values) else None
