"""Orders and lots that are computed, not drawn: the same wherever and in whatever parts they are asked for."""

from __future__ import annotations

import numpy as np


def shuffled(places: np.ndarray, size: int, seed: int) -> np.ndarray:
    """What stands at ``places`` of a seeded shuffle of ``range(size)``, without making the shuffle: int64.

    A Feistel network on the smallest even number of bits that holds ``size``; a number beyond it is sent through again
    until it is inside (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    half = max(1, -(-(size - 1).bit_length() // 2))
    bits, low = np.uint64(half), np.uint64((1 << half) - 1)
    keys = np.random.SeedSequence(seed).generate_state(6, np.uint64)

    def once(number: np.ndarray) -> np.ndarray:
        left, right = number >> bits, number & low
        for key in keys:
            left, right = right, left ^ (mixed(right ^ key) & low)
        return (left << bits) | right

    found = once(places.astype(np.uint64))
    while (beyond := found >= size).any():
        found[beyond] = once(found[beyond])
    return found.astype(np.int64)


def mixed(number: np.ndarray) -> np.ndarray:
    """uint64 numbers of which every bit depends on every bit: the last steps of SplitMix64 (Steele et al., 2014)."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))
