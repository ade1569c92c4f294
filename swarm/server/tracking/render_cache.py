"""Prompts rendered lately, for the members of a group: all of them begin with the same messages."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

import orjson

ENTRIES = 512
LARGEST = 1 << 17
"""Bytes of messages above which a prompt is not kept."""

T = TypeVar("T")


class RenderCache(Generic[T]):
    """The last prompts by everything that a template sees; whoever takes one out must not change it."""

    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._known: OrderedDict[bytes, T] = OrderedDict()

    def key(self, *seen: object) -> bytes:
        """Return the key of what a template sees; empty when it cannot be kept (too long, or no JSON)."""
        try:
            key = orjson.dumps(seen)
        except TypeError:
            return b""
        return key if len(key) <= LARGEST else b""

    def get(self, key: bytes) -> T | None:
        """Return what was put there; None = nothing, or no longer."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def put(self, key: bytes, prompt: T) -> None:
        """Keep ``prompt``; an empty key keeps nothing."""
        if not key:
            return
        self._known[key] = prompt
        if len(self._known) > self._entries:
            self._known.popitem(last=False)
