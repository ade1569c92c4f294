"""Sampling noise as a pure function of a key: the same key gives the same uniforms in every process."""

from __future__ import annotations

import hashlib

import numpy as np

BLOCK = 32
_WORD_BYTES = 8


class Noise:
    """The stream of uniforms in [0, 1) that belongs to one ``noise_key``: 53 bits each of SHAKE-128 over key and block."""

    def __init__(self, noise_key: str) -> None:
        self._seed = hashlib.sha256(noise_key.encode("utf-8")).digest()
        self._blocks = 0
        self._block: list[float] = []

    def next(self) -> float:
        """Return the next uniform."""
        if not self._block:
            self._block = self._draw()[::-1]
        return self._block.pop()

    def _draw(self) -> list[float]:
        label = self._seed + self._blocks.to_bytes(_WORD_BYTES, "little")
        self._blocks += 1
        words = hashlib.shake_128(label).digest(BLOCK * _WORD_BYTES)
        return ((np.frombuffer(words, dtype="<u8") >> 11) * 2.0**-53).tolist()
