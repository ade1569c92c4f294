"""The order in which tasks are taken: a keyed permutation that client and server compute alike, without storing it."""

from __future__ import annotations

import hashlib

FEISTEL_ROUNDS = 4


def keyed_hash(*parts: object) -> int:
    """A 64-bit number that depends on ``parts`` (by their text) and on nothing else."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def permuted(position: int, size: int, key: str) -> int:
    """The image of ``position`` under a keyed permutation of ``range(size)``.

    A balanced Feistel network over the next even number of bits, walked until it lands inside (cycle walking;
    Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). ``size`` 1 returns 0.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    value = position
    while True:
        left, right = value >> half, value & mask
        for turn in range(FEISTEL_ROUNDS):
            left, right = right, left ^ (keyed_hash(key, turn, right) & mask)
        value = (left << half) | right
        if value < size:
            return value


def in_epochs(position: int, size: int, seed: int) -> int:
    """Index of the item at ``position`` of an endless order: one random permutation of ``range(size)`` an epoch."""
    epoch, place = divmod(position, size)
    return permuted(place, size, f"{seed}/{epoch}")
