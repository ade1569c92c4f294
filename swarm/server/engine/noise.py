"""Sampling noise as a pure function of a key: the same key gives the same uniforms in every process."""

from __future__ import annotations

import hashlib

import numpy as np

BLOCK = 32


class Noise:
    """The stream of uniforms in [0, 1) that belongs to one ``noise_key`` (Philox counters keyed by its sha256)."""

    def __init__(self, noise_key: str) -> None:
        digest = hashlib.sha256(noise_key.encode("utf-8")).digest()
        key = np.frombuffer(digest[:16], dtype=np.uint64)
        self._generator = np.random.Generator(np.random.Philox(key=key))
        self._block: list[float] = []

    def next(self) -> float:
        """Return the next uniform; drawn in blocks, which does not change the stream."""
        if not self._block:
            self._block = self._generator.random(BLOCK).tolist()[::-1]
        return self._block.pop()
