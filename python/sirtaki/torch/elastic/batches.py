"""Batches of a size that does not depend on the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch

from sirtaki.data import plan
from sirtaki.data.sampler import Position


class ConstantBatchSampler(torch.utils.data.Sampler[list[int]]):
    """Shares out the parts of each step's batch, so that survivors do the share of who is lost.

    The batch of a step has `parts` parts of `batch_size` samples. Rank r of n computes `passes` of
    them: every n-th from the r-th on. So each step has the same samples in any world. Give it to a
    loader as `batch_sampler`, tell the optimizer with ``optimizer.share_batch(sampler.passes,
    sampler.parts)``, in each new world again, and step after `passes` batches. At the end of an
    epoch a few samples come twice to fill the last step.

    Args:
        dataset: What is sampled; only its length counts.
        batch_size: Samples in a part.
        parts: At least as many as there will be ranks, best a multiple of most sizes.
        shuffle: Whether the order is random, another one in each epoch.
        seed: Of the order; the same on all ranks.

    Raises:
        ValueError: There are more ranks than parts, or no samples.
    """

    def __init__(
        self, dataset: Sized, batch_size: int, parts: int, shuffle: bool = True, seed: int = 0
    ) -> None:
        if len(dataset) < 1 or batch_size < 1:
            raise ValueError("ConstantBatchSampler needs samples, and a positive batch_size")
        self.dataset = dataset
        self.batch_size = batch_size
        self.parts = parts
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def reset(self) -> None:
        """Share out the parts among the ranks of the present world."""
        rank, size = plan.place_of(None)
        if size > self.parts:
            raise ValueError(
                f"ConstantBatchSampler: {size} ranks cannot share {self.parts} parts; give parts= "
                "at least --max-np"
            )
        self._mine = range(rank, self.parts, size)
        self.passes = len(self._mine)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: no sample of it has been used."""
        self.epoch = epoch
        self.processed_num = 0

    def record_step(self) -> None:
        """Note that all ranks have done a step; call it before ``state.commit()``."""
        self.processed_num = min(
            self.processed_num + self.parts * self.batch_size, len(self.dataset)
        )

    def state_dict(self) -> Position:
        """Return how far the epoch has come."""
        return Position(epoch=self.epoch, processed_num=self.processed_num)

    def load_state_dict(self, state_dict: Position) -> None:
        """Go on from where `state_dict` was called, on any number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]

    def __iter__(self) -> Iterator[list[int]]:
        order = plan.order(len(self.dataset), self.shuffle, (self.seed, self.epoch)).tolist()
        step = self.parts * self.batch_size
        for begin in range(self.processed_num, len(order), step):
            batch = order[begin : begin + step]
            while len(batch) < step:
                batch += order[: step - len(batch)]
            for part in self._mine:
                yield batch[part * self.batch_size : (part + 1) * self.batch_size]

    def __len__(self) -> int:
        step = self.parts * self.batch_size
        return -(-(len(self.dataset) - self.processed_num) // step) * self.passes
