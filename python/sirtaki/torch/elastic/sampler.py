"""Which samples a rank takes, in worlds whose size changes within an epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Sized
from typing import TypedDict

import torch

from sirtaki.core.world import state


class SamplerState(TypedDict):
    """How far an epoch has come: `processed_num` samples of it have been used by all ranks."""

    epoch: int
    processed_num: int


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Shares out a dataset so that each epoch uses every sample once, however worlds change.

    The samples of an epoch have one order on all ranks, and rank r of n takes every n-th of them
    from the r-th on. All ranks use batches of the same size, so how far they have come is one
    number. A new world shares out what lies behind it. Mirrors
    ``horovod.torch.elastic.ElasticSampler``.

    Args:
        dataset: What is sampled; only its length counts.
        shuffle: Whether the order is random, another one in each epoch.
        seed: Of the order; the same on all ranks.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: no sample of it has been used.

        Args:
            epoch: Its number, which together with the seed determines the order.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that all ranks have used a batch; call it before ``state.commit()``.

        Args:
            batch_idx: The number of the batch since the iteration began, from 0.
            batch_size: How many samples each batch of a rank has; the last may have fewer.
        """
        used = min((batch_idx + 1) * batch_size, self.num_samples)
        self._note(used)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Note that all ranks have used as many samples as these, which are the next ones here.

        Args:
            indices: Of this rank's samples.
        """
        self._note(self._used + len(indices))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the samples of a batch of this rank; arguments as of `record_batch`."""
        start = batch_idx * batch_size
        return self.indices[start : min(start + batch_size, self.num_samples)]

    def _note(self, used: int) -> None:
        self._used = used
        done = self._begun + used * self.num_replicas
        # What was added to give all ranks equally many counts for nothing.
        self.processed_num = min(done, len(self.dataset))

    def state_dict(self) -> SamplerState:
        """Return how far the epoch has come."""
        return SamplerState(epoch=self.epoch, processed_num=self.processed_num)

    def load_state_dict(self, state_dict: SamplerState) -> None:
        """Go on from where `state_dict` was called, on any number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Share out what is left of the epoch among the ranks of the present world."""
        initialized = state.is_initialized()
        self.rank = state.rank() if initialized else 0
        self.num_replicas = state.size() if initialized else 1
        order = self._order()
        self._begun, self._used = self.processed_num, 0
        left = order[self.processed_num :]
        self.remaining_indices = left
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        # A few are used twice at the end of an epoch, for all ranks to have equally many.
        padded = left * math.ceil(self.total_size / max(1, len(left)))
        self.indices = padded[self.rank : self.total_size : self.num_replicas]

    def _order(self) -> list[int]:
        count = len(self.dataset)
        if not self.shuffle:
            return list(range(count))
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(count, generator=generator).tolist()
        return order

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
