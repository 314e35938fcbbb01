"""Which samples a rank takes, in worlds whose size changes within an epoch."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import torch

from sirtaki.data import ShardSampler, plan


class ElasticSampler(ShardSampler, torch.utils.data.Sampler[int]):
    """Shares out a dataset so that each epoch uses every sample once, however worlds change.

    The samples of an epoch have one order on all ranks, and rank r of n takes every n-th of them
    from the r-th on. All ranks use batches of the same size, so how far they have come is one
    number. A new world shares out what lies behind it. Mirrors
    ``horovod.torch.elastic.ElasticSampler``.

    Args:
        dataset: What is sampled; only its length counts.
        shuffle: Whether the order is random, another one in each epoch.
        seed: Of the order; the same on all ranks.
        even: `"pad"` uses a few samples twice at the end of an epoch so that all ranks have as
            many, `"drop"` leaves a few out, `"join"` does neither: ranks that are done call
            ``hvd.join()``, then all call ``state.sync()``.

    Raises:
        ValueError: If `even` cannot be.
    """

    def __init__(
        self, dataset: Sized, shuffle: bool = True, seed: int = 0, even: plan.Even = "pad"
    ) -> None:
        self.dataset = dataset
        super().__init__(dataset, even, shuffle, seed)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Note that all ranks have used as many samples as these, which are the next ones here.

        Args:
            indices: Of this rank's samples.

        Raises:
            ValueError: With ``even="join"``, where it does not follow what the others have used.
        """
        if self.even == "join":
            raise ValueError(
                "record_indices cannot tell how many samples other ranks have used with "
                "even='join'; call record_batch(batch_idx, batch_size)"
            )
        self._note(self._used + len(indices))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the samples of a batch of this rank; arguments as of `record_batch`."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def reset(self) -> None:
        """Share out what is left of the epoch among the ranks of the present world."""
        super().reset()
        self.rank, self.num_replicas = self._rank, self._size
        self.remaining_indices: list[int] = self._left.tolist()
        self.indices: list[int] = self._indices.tolist()
        self.num_samples = len(self.indices)
        padded = self.num_samples * self.num_replicas
        self.total_size = len(self.remaining_indices) if self.even == "join" else padded
