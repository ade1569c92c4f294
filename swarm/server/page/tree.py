"""Which call continues which: the calls of an episode in the order of a reader, a branch after what it branches from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from swarm.protocol.records import CallRecord


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands in the tree."""

    call: CallRecord
    parent: CallRecord | None
    cut: int
    """Leading prompt tokens that the parent's page entry shows already: its prompt and its answer."""
    depth: int
    """Forks above it: a chain without forks stays on one level."""


def in_reading_order(calls: Sequence[CallRecord]) -> list[Place]:
    """Return every call once: roots in order of commitment, each followed by what continues it."""
    by_index = {call.index: call for call in calls}
    parents = {call.index: _parent(call, by_index, calls) for call in calls}
    children: dict[int | None, list[CallRecord]] = defaultdict(list)
    for call in calls:
        parent = parents[call.index]
        children[parent.index if parent else None].append(call)
    places: list[Place] = []
    waiting = [(call, 0) for call in reversed(children[None])]
    while waiting:
        call, depth = waiting.pop()
        parent = parents[call.index]
        cut = len(parent.prompt_ids) + len(parent.sampled_ids) if parent else 0
        places.append(Place(call, parent, cut, depth))
        below = children[call.index]
        deeper = depth + (len(below) > 1)
        waiting += [(child, deeper) for child in reversed(below)]
    return places


def _parent(
    call: CallRecord, by_index: dict[int, CallRecord], calls: Sequence[CallRecord]
) -> CallRecord | None:
    """Return the recorded parent when the prompt really extends it, else the longest earlier call that it extends."""
    told = None if call.parent is None else by_index.get(call.parent)
    if told is not None and told.index < call.index and _extends(call, told):
        return told
    if call.parent is not None:
        return None
    earlier = (other for other in calls if other.index < call.index and other.sampled_ids)
    found = [other for other in earlier if _extends(call, other)]
    return max(found, key=_length, default=None)


def _length(call: CallRecord) -> int:
    return len(call.prompt_ids) + len(call.sampled_ids)


def _extends(call: CallRecord, other: CallRecord) -> bool:
    if _length(other) > len(call.prompt_ids) or call.tools != other.tools:
        return False
    return call.prompt_ids[: _length(other)] == other.prompt_ids + other.sampled_ids
