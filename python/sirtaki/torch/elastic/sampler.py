"""Assignment of samples to ranks, in worlds whose size changes within an epoch."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import torch

from sirtaki.data import ShardSampler, plan


class ElasticSampler(ShardSampler, torch.utils.data.Sampler[int]):
    """Divides a dataset so that each epoch uses every sample once, however worlds change.

    The samples of an epoch have the same order on all ranks, and rank r of n takes every n-th of
    them from the r-th on. All ranks use batches of the same size, so one number describes their
    progress. A new world divides the remaining samples. Mirrors
    ``horovod.torch.elastic.ElasticSampler``.

    Args:
        dataset: The dataset to sample; only its length matters.
        shuffle: Whether the order is random and differs in each epoch.
        seed: The seed of the order; the same on all ranks.
        even: `"pad"` repeats a few samples at the end of an epoch so that all ranks have equally
            many, `"drop"` omits a few, `"join"` does neither: ranks that are done call
            ``hvd.join()``, then all call ``state.sync()``.

    Raises:
        ValueError: If `even` is invalid.
    """

    def __init__(
        self, dataset: Sized, shuffle: bool = True, seed: int = 0, even: plan.Even = "pad"
    ) -> None:
        self.dataset = dataset
        super().__init__(dataset, even, shuffle, seed)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Record that all ranks have used as many samples as these, which are the next ones here.

        Args:
            indices: The indices of this rank's samples.

        Raises:
            ValueError: With ``even="join"``, if the other ranks' progress does not follow from it.
        """
        if self.even == "join":
            raise ValueError(
                "record_indices cannot tell how many samples other ranks have used with "
                "even='join'; call record_batch(batch_idx, batch_size)"
            )
        self._note(self._used + len(indices))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return this rank's samples of a batch; arguments as for `record_batch`."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def reset(self) -> None:
        """Divide the rest of the epoch among the ranks of the current world."""
        super().reset()
        self.rank, self.num_replicas = self._rank, self._size
        self.remaining_indices: list[int] = self._left.tolist()
        self.indices: list[int] = self._indices.tolist()
        self.num_samples = len(self.indices)
        padded = self.num_samples * self.num_replicas
        self.total_size = len(self.remaining_indices) if self.even == "join" else padded
