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
    text = f"{seed} {epoch} {sample}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
