"""Batches of a size independent of the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch

from sirtaki.data import plan
from sirtaki.data.sampler import Position


class ConstantBatchSampler(torch.utils.data.Sampler[list[int]]):
    """Divides each step's batch into parts, so that survivors take over a lost rank's parts.

    The batch of a step has `parts` parts of `batch_size` samples. Rank r of n computes `passes` of
    them: every n-th one, starting at the r-th. So each step has the same samples in any world. Pass
    it to a loader as `batch_sampler`, call ``optimizer.share_batch(sampler.passes, sampler.parts)``
    in each new world, and step after `passes` batches; or iterate over ``state.parts()``. At the
    end of an epoch a few samples are repeated to fill the last step.

    Args:
        dataset: The dataset to sample; only its length matters.
        batch_size: Samples in a part.
        parts: At least the largest number of ranks, ideally a multiple of most sizes.
        shuffle: Whether the order is random and differs in each epoch.
        seed: The seed of the order; the same on all ranks.

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
        self._ordered: tuple[object, list[int]] | None = None
        self.reset()

    def reset(self) -> None:
        """Divide the parts among the ranks of the current world."""
        rank, size = plan.place_of(None)
        if size > self.parts:
            raise ValueError(
                f"ConstantBatchSampler: {size} ranks cannot share {self.parts} parts; give parts= "
                "at least --max-np"
            )
        self.mine = range(rank, self.parts, size)
        self.passes = len(self.mine)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with all samples unused."""
        self.epoch = epoch
        self.processed_num = 0

    def record_step(self) -> None:
        """Record that all ranks have done a step; call it before ``state.commit()``."""
        self.processed_num = self.after_step

    @property
    def after_step(self) -> int:
        """The number of samples used after the next step."""
        return min(self.processed_num + self.parts * self.batch_size, len(self.dataset))

    @property
    def steps_left(self) -> int:
        """The number of steps until the end of the epoch."""
        return -(-(len(self.dataset) - self.processed_num) // (self.parts * self.batch_size))

    def step_samples(self) -> list[list[int]]:
        """Return the samples of each part of the next step, on any rank."""
        return self._parts_at(self._order(), self.processed_num)

    def _order(self) -> list[int]:
        key = (len(self.dataset), self.shuffle, self.seed, self.epoch)
        if self._ordered is None or self._ordered[0] != key:
            order = plan.order(len(self.dataset), self.shuffle, (self.seed, self.epoch))
            self._ordered = (key, order.tolist())
        return self._ordered[1]

    def _parts_at(self, order: list[int], begin: int) -> list[list[int]]:
        step = self.parts * self.batch_size
        batch = order[begin : begin + step]
        while len(batch) < step:
            batch += order[: step - len(batch)]
        return [batch[at : at + self.batch_size] for at in range(0, step, self.batch_size)]

    def state_dict(self) -> Position:
        """Return the position in the epoch."""
        return Position(epoch=self.epoch, processed_num=self.processed_num)

    def load_state_dict(self, state_dict: Position) -> None:
        """Continue from the position that `state_dict` returned, on any number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for begin in range(self.processed_num, len(order), self.parts * self.batch_size):
            parts = self._parts_at(order, begin)
            yield from (parts[part] for part in self.mine)

    def __len__(self) -> int:
        return self.steps_left * self.passes
