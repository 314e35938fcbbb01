"""Random seeds that belong to a sample, independent of its rank."""

from __future__ import annotations

import hashlib


def sample_seed(seed: int, epoch: int, sample: int) -> int:
    """Return a seed for the augmentation of a sample, the same on any rank of any world.

    Args:
        seed: The seed of the training.
        epoch: Its number.
        sample: The sample's index in the dataset.

    Returns:
        A number of 63 bits.
    """
    return _number(f"{seed} {epoch} {sample}")


def part_seed(seed: int, epoch: int, position: int, part: int) -> int:
    """Return a seed for the random numbers of one part of a step, wherever it is computed.

    Args:
        seed: The seed of the training.
        epoch: Its number.
        position: How many samples of the epoch were used before the step.
        part: The number of the part.

    Returns:
        A number of 63 bits.
    """
    return _number(f"{seed} {epoch} {position} part {part}")


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
