"""From the calls of one episode to the fewest rows that train every sampled token exactly once. Pure functions.

A call continues an earlier one when its prompt starts with that call's prompt and answer (the longest such). Rows are
the root-to-leaf paths of the resulting forest; a node shared by several leaves is trained in the first row only and
is plain context in the others. Aborted and empty answers are never parents, and an agent continues only its own calls.
Equal ids over different pictures are different prompts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from swarm.protocol.records import CallRecord
from swarm.protocol.states import FinishReason
from swarm.server.pictures.parts import digests
from swarm.server.ports import Span
from swarm.server.tracking.account import TRAINED, Fate, call_fate
from swarm.server.tracking.render import MessageKey, message_key, normal_message

TokenBytes = Callable[[int], bytes]


@dataclass(slots=True)
class MergedRow:
    """One sequence: the longest conversation of a leaf, with the spans that train in this row."""

    ids: list[int]
    spans: list[Span]
    """Ascending, disjoint, none empty."""
    logprobs: list[float]
    """Of the tokens in ``spans``, concatenated."""
    call_indices: list[int] = field(default_factory=list[int])
    """The call whose tokens each span trains; a call that trains with gaps (``token_mask``) has several spans."""
    starts: list[int] = field(default_factory=list[int])
    """Where in the sampled tokens of its call each span begins."""
    pictures: list[str] = field(default_factory=list[str])
    """Digest of the picture behind each image token of ``ids``, in order."""


class Merged(NamedTuple):
    """Result of ``build_rows``."""

    rows: list[MergedRow]
    fates: list[Fate]
    """One a call, in the order of ``calls``."""


@dataclass(slots=True)
class _Node:
    """A call on its way into a row."""

    call: CallRecord
    fate: Fate
    data: bytes
    """Prompt and answer as packed ids."""
    prompt_data: bytes
    pictures: list[str]
    """Of its prompt, in order."""
    parent: _Node | None = None
    cut: int = 0
    """Tokens of the own prompt that the parent's prompt and answer stand for."""
    children: int = 0
    wanted: bool = False
    """True when the call or a descendant trains."""
    inner: bool = False
    """True when a descendant trains: such a call is no leaf."""
    written: bool = False
    keys: list[MessageKey] | None = None
    text: bytes | None = None


def build_rows(
    calls: Sequence[CallRecord],
    match: Literal["token", "text"] = "token",
    *,
    token_bytes: TokenBytes | None = None,
    fates: Sequence[Fate] | None = None,
    image_token: int | None = None,
) -> Merged:
    """Merge the calls of one episode into rows and give every call its fate.

    ``match="token"``: continuation by ids, exact. ``match="text"``: continuation by messages (with equal tools), also
    when the ids of the history drifted; the row then keeps the captured ids of the earlier call and takes only what
    is new from the later prompt (timeline merging). This needs ``token_bytes`` to find where the new part begins; a
    prompt whose text does not extend the earlier text, or continues it inside a token, stays a row of its own.

    ``image_token``: stands for a picture in prompts, None = the model reads text only; where one was sampled, the row ends before it.

    Calls are taken in order of commitment. ``fates``: which calls train, one a call; None = as ``call_fate`` says. Returns no
    rows when nothing trains; calls that do not train are context only.
    """
    if fates is None:
        fates = [call_fate(call) for call in calls]
    nodes = [_node(call, fate, image_token) for call, fate in zip(calls, fates, strict=True)]
    linkable: list[_Node] = []
    for node in nodes:
        _link(node, linkable, match, token_bytes)
        if goes_on(node.call, image_token):
            linkable.append(node)
    for node in reversed(nodes):
        node.wanted = node.inner or (node.fate == TRAINED and bool(node.call.sampled_ids))
        if node.wanted and node.parent is not None:
            node.parent.inner = True
    rows = [_row(node, image_token) for node in nodes if node.wanted and not node.inner]
    return Merged(rows, [node.fate for node in nodes])


def goes_on(call: CallRecord, image_token: int | None) -> bool:
    """Whether anything can continue a call: not an answer without tokens, an aborted one, or one with an image token, which shows no picture."""
    whole = bool(call.sampled_ids) and call.finish_reason != FinishReason.ABORT
    return whole and (image_token is None or image_token not in call.sampled_ids)


def _node(call: CallRecord, fate: Fate, image_token: int | None) -> _Node:
    prompt = array("q", call.prompt_ids).tobytes()
    sampled = array("q", call.sampled_ids).tobytes()
    pictures = [] if image_token is None else digests(call.messages)
    return _Node(call, fate, prompt + sampled, prompt, pictures)


def _link(node: _Node, earlier: list[_Node], match: str, token_bytes: TokenBytes | None) -> None:
    """Set parent and cut. Among equally long candidates the least continued wins: equal twins stay two chains."""
    if node.call.finish_reason == FinishReason.ABORT:
        return
    best = _by_token(node, earlier)
    cut = len(best.data) // 8 if best else 0
    if match == "text" and token_bytes is not None:
        best, cut = _by_text(node, earlier, token_bytes) or (best, cut)
    if best is not None:
        node.parent, node.cut = best, cut
        best.children += 1


def _by_token(node: _Node, earlier: list[_Node]) -> _Node | None:
    best: _Node | None = None
    for other in earlier:
        if best is not None and not _better(len(other.data), len(best.data), other, best):
            continue
        if node.prompt_data.startswith(other.data) and _alike(node, other):
            best = other
    return best


def _by_text(
    node: _Node, earlier: list[_Node], token_bytes: TokenBytes
) -> tuple[_Node, int] | None:
    """Return the call with the longest message prefix whose text the prompt extends, and the cut."""
    keys = _keys(node)
    best: tuple[_Node, int] | None = None
    for other in earlier:
        if best is not None and not _better(len(_keys(other)), len(_keys(best[0])), other, best[0]):
            continue
        if _extends(keys, other) and _alike(node, other):
            cut = _cut(node, other, token_bytes)
            best = best if cut is None else (other, cut)
    return best


def _alike(node: _Node, other: _Node) -> bool:
    """Whether one may continue the other at all: the same agent with the same tools and pictures."""
    seen = other.pictures
    if seen and node.pictures[: len(seen)] != seen:
        return False
    return other.call.agent == node.call.agent and other.call.tools == node.call.tools


def _better(length: int, best_length: int, other: _Node, best: _Node) -> bool:
    return length > best_length or (length == best_length and other.children < best.children)


def _keys(node: _Node) -> list[MessageKey]:
    if node.keys is None:
        node.keys = [_key(message) for message in node.call.messages]
    return node.keys


def _key(message: dict[str, Any]) -> MessageKey:
    return message_key(normal_message(message))


def _extends(keys: list[MessageKey], other: _Node) -> bool:
    shorter = _keys(other)
    n = len(shorter)
    return len(keys) > n and keys[:n] == shorter and keys[n] == _key(other.call.reply)


def _cut(node: _Node, other: _Node, token_bytes: TokenBytes) -> int | None:
    """Count the tokens of ``node``'s prompt that spell ``other``'s prompt and answer; None when none do exactly."""
    if node.prompt_data.startswith(other.data):
        return len(other.data) // 8
    if other.text is None:
        ids = other.call.prompt_ids + other.call.sampled_ids
        other.text = b"".join(map(token_bytes, ids))
    spelled, length = [token_bytes(token) for token in node.call.prompt_ids], 0
    for cut, piece in enumerate(spelled):
        if length >= len(other.text):
            return cut if b"".join(spelled[:cut]) == other.text else None
        length += len(piece)
    return None


def _row(leaf: _Node, image_token: int | None) -> MergedRow:
    """Write the path to ``leaf``; whatever on it trains and is not yet written trains here."""
    path: list[_Node] = []
    node: _Node | None = leaf
    while node is not None:
        path.append(node)
        node = node.parent
    row = MergedRow(ids=[], spans=[], logprobs=[], pictures=leaf.pictures)
    for node in reversed(path):
        call = node.call
        row.ids += call.prompt_ids[node.cut :]
        start = len(row.ids)
        length = _shown_length(call, image_token)
        row.ids += call.sampled_ids[:length]
        if node.fate == TRAINED and not node.written:
            node.written = True
            for first, end in _runs(call, length):
                row.spans.append(Span(start + first, start + end, call.temperature))
                row.logprobs += call.logprobs[first:end]
                row.call_indices.append(call.index)
                row.starts.append(first)
    return row


def _shown_length(call: CallRecord, image_token: int | None) -> int:
    """How many of a call's sampled tokens a row holds: those before an image token, which would stand for no picture."""
    sampled = call.sampled_ids
    if image_token is None or image_token not in sampled:
        return len(sampled)
    return sampled.index(image_token)


def _runs(call: CallRecord, length: int) -> list[tuple[int, int]]:
    """Return the stretches [first, end) of a call's first ``length`` sampled tokens that train."""
    if not call.token_mask:
        return [(0, length)] if length else []
    runs: list[tuple[int, int]] = []
    first: int | None = None
    for i, kept in enumerate([*call.token_mask[:length], False]):
        if kept and first is None:
            first = i
        elif not kept and first is not None:
            runs.append((first, i))
            first = None
    return runs
