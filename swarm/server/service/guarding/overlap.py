"""Whether what trains is what is evaluated: first prompts of evaluation episodes are remembered, consumed groups are looked up.

Kept in memory only: a restarted server knows none until the next round, and then says None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from swarm.protocol.records import CallRecord
from swarm.server.pictures.parts import digests


class EvalPrompts:
    """First prompts that evaluation episodes showed, as hashes of their ids and pictures."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def add(self, calls: Sequence[CallRecord]) -> None:
        """Remember the first prompt of an evaluation episode; one without calls has none."""
        if calls:
            self._known.add(_key(calls[0]))

    def fields(self, groups: Iterable[Sequence[Sequence[CallRecord]]]) -> dict[str, Any]:
        """Return the field of ``StepMetrics``; ``groups``: the calls of each member of each consumed group."""
        if not self._known:
            return {"eval_overlap": None}
        shared = (
            any(calls and _key(calls[0]) in self._known for calls in group) for group in groups
        )
        return {"eval_overlap": sum(shared)}


def _key(call: CallRecord) -> int:
    return hash((*call.prompt_ids, *digests(call.messages)))
