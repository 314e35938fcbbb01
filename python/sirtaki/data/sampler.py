"""The samples of a dataset with a length, by rank."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import TypedDict

from sirtaki.data import plan


class Position(TypedDict):
    """The position in an epoch: all ranks together have used `processed_num` of its samples."""

    epoch: int
    processed_num: int


class ShardSampler:
    """The indices of this rank's samples, for `DataLoader(..., sampler=...)`.

    All ranks use the same order and take every size-th number, so each sample is used once in an
    epoch. The sampler works with any dataset that has a length, such as a list. In elastic
    training, pass it to the state (`TorchState(..., sampler=sampler)`): a new world divides the
    remaining samples.

    Args:
        data: The dataset, or its number of samples.
        even: `"pad"` repeats a few samples so that all ranks have equally many, `"drop"` leaves a
            few out, `"join"` does neither: ranks that are done call `hvd.join()`, and in elastic
            training all then call ``state.sync()``.
        shuffle: Whether each epoch has a new random order.
        seed: The seed of the order; the same on all ranks.
        place: Rank and number of ranks, if different from the world's.

    Raises:
        ValueError: If `even` or `place` has an invalid value.
    """

    # The largest number of samples of a rank.
    _most: int

    def __init__(
        self,
        data: Sized | int,
        even: plan.Even = "pad",
        shuffle: bool = True,
        seed: int = 0,
        place: tuple[int, int] | None = None,
    ) -> None:
        plan.require_even(even)
        self.even, self.shuffle, self.seed = even, shuffle, seed
        self.epoch = self.processed_num = 0
        self._count = data if isinstance(data, int) else len(data)
        self._place = place
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with all samples unused.

        In elastic training, call it at the end of the epoch before.

        Args:
            epoch: The epoch's number, which with the seed determines the order.
        """
        self.load_state_dict({"epoch": epoch, "processed_num": 0})

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that all ranks have used one more batch; call it before ``state.commit()``.

        Args:
            batch_idx: Unused, as in Horovod: it may count the batches of the iteration or of the
                epoch.
            batch_size: The samples in each batch of a rank; the last may have fewer.
        """
        self._note(self._used + batch_size)

    def _note(self, used: int) -> None:
        """Record the largest number of samples that a rank has used in this world."""
        self._used = min(used, self._most)
        self.processed_num = min(self._begun + self._used * self._size, self._count)

    def state_dict(self) -> Position:
        """Return the position in the epoch."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Position) -> None:
        """Continue from the position that `state_dict` returned, on any number of ranks."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divide the rest of the epoch among the ranks of the current world."""
        self._rank, self._size = plan.place_of(self._place)
        order = plan.order(self._count, self.shuffle, (self.seed, self.epoch))
        self._begun, self._used = self.processed_num, 0
        self._left = order[self._begun :]
        self._indices = plan.deal(self._left, self._rank, self._size, self.even)
        self._most = len(plan.deal(self._left, 0, self._size, self.even))

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices.tolist())

    def __len__(self) -> int:
        return len(self._indices)
