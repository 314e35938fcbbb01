"""Data loaders of ranks that are under way."""

from __future__ import annotations

import torch

import sirtaki.torch as hvd


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index + 100 * hvd.rank())])


def test_data_loaders_fork_workers_as_ever() -> None:
    ranks, totals = hvd.size(), []
    for _ in range(2):
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=4, num_workers=1, multiprocessing_context="fork"
        )
        totals += [hvd.allreduce(batch.sum(0), op=hvd.Sum).item() for batch in loader]
    hundreds = 400 * sum(range(ranks))
    assert totals == [6 * ranks + hundreds, 22 * ranks + hundreds] * 2
