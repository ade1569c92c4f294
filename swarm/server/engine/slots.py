"""Which cache slot a request gets, and how much of its prompt is already there.

Pure bookkeeping over ids (numpy); the tensors are ``decoder``'s. A slot remembers the ids whose keys and values it holds,
also after its request ended: the next call of the same episode usually starts with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

COPY_GAIN = 8  # positions that another slot must offer on top before its prefix is copied


@dataclass(frozen=True)
class Placement:
    """A slot for a request: first copy ``copied`` positions from slot ``source`` (0 = none), then ``ready`` positions hold."""

    slot: int
    ready: int
    source: int
    copied: int


class SlotTable:
    """Slots 1..count, each free or taken, each with the ids that it caches."""

    def __init__(self, count: int, capacity: int) -> None:
        self.count = count
        self._ids: npt.NDArray[np.int32] = np.full((count + 1, capacity), -1, dtype=np.int32)
        self._affinity = [""] * (count + 1)
        self._used = np.zeros(count + 1, dtype=np.int64)
        self._free = set(range(1, count + 1))
        self._clock = 0

    @property
    def free(self) -> int:
        """Number of slots that no request holds."""
        return len(self._free)

    def place(self, prompt_ids: list[int], affinity: str) -> Placement:
        """Take a free slot for a prompt; at least one token of the prompt is always left to compute.

        Prefers the free slot of the same affinity that shares the longest prefix, else the least recently used one.
        """
        shared = self._shared(prompt_ids)
        own = [s for s in self._free if self._affinity[s] == affinity and shared[s] > 0]
        if own:
            slot = max(own, key=lambda s: (shared[s], -s))
        else:
            slot = min(self._free, key=lambda s: (self._used[s], s))
        source = int(shared.argmax())
        copied = 0
        if shared[source] >= shared[slot] + COPY_GAIN:
            copied = int(shared[source])
        ready = copied or int(shared[slot])
        self._free.remove(slot)
        self._ids[slot, ready:] = -1
        self._ids[slot, :ready] = prompt_ids[:ready]
        self._affinity[slot] = affinity
        return Placement(slot, ready, source if copied else 0, copied)

    def note(self, slot: int, ids: list[int]) -> None:
        """Say which ids the slot caches by now, from its start; they may be more than the last note said, not others."""
        self._ids[slot, : len(ids)] = ids

    def release(self, slot: int, ids: list[int]) -> None:
        """Give the slot back; ``ids``, which it caches, stay until someone else takes it."""
        self.note(slot, ids)
        self._clock += 1
        self._used[slot] = self._clock
        self._free.add(slot)

    def forget(self) -> None:
        """Void every cached prefix (the weights changed). Slots in use stay taken."""
        self._ids[:] = -1
        self._affinity = [""] * (self.count + 1)

    def _shared(self, prompt_ids: list[int]) -> npt.NDArray[np.int64]:
        """Per slot, positions shared with the prompt, at most its length minus one; index 0 (scratch) is 0."""
        usable = len(prompt_ids) - 1
        if usable == 0:
            return np.zeros(self.count + 1, dtype=np.int64)
        prompt = np.asarray(prompt_ids[:usable], dtype=np.int32)
        differs = self._ids[:, :usable] != prompt  # unwritten positions hold -1, which no id equals
        shared = np.where(differs.any(1), differs.argmax(1), usable).astype(np.int64)
        shared[0] = 0
        return shared
