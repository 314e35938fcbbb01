"""Ranks, and workers of their loaders, share out datasets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import sirtaki.torch as hvd
from sirtaki.data import ShardSampler
from sirtaki.torch.data import IterableShard

RANKS = 3


class Numbers:
    """A stream, the same for all."""

    def __iter__(self) -> Any:
        return iter(range(47))


def batches(rank: int, even: Any, workers: int, **kwargs: Any) -> list[list[int]]:
    stream = IterableShard(Numbers(), even, (rank, RANKS))
    loader = DataLoader(stream, batch_size=3, num_workers=workers, **kwargs)
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("even", "counts"), [("drop", {0: 15, 2: 14}), ("pad", {0: 16, 2: 16}), ("join", None)]
)
def test_a_stream_is_shared_by_ranks_and_workers(
    even: str, counts: dict[int, int] | None, workers: int
) -> None:
    of_ranks = [batches(rank, even, workers) for rank in range(RANKS)]
    samples = [[number for batch in each for number in batch] for each in of_ranks]
    everything = sorted(number for each in samples for number in each)
    if counts is None:
        assert everything == list(range(47))
    else:
        assert [len(each) for each in samples] == [counts[workers]] * RANKS
        assert len({len(each) for each in of_ranks}) == 1
        assert set(everything) == set(range(47 if even == "pad" else RANKS * counts[workers]))


@pytest.mark.slow
def test_workers_that_are_not_forked_know_their_rank() -> None:
    spawned = batches(1, "drop", 1, multiprocessing_context="spawn")
    assert spawned == batches(1, "drop", 0)


class Parts:
    """A stream that shares itself out."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def share(self, worker: int, workers: int) -> Any:
        return iter([(worker, workers, self.resets)])

    __iter__ = None


def test_a_stream_that_shares_itself_is_asked_for_the_part_of_each_worker() -> None:
    parts: Any = Parts()
    shard = IterableShard(parts)
    assert list(shard) == [(0, 1, 1)]
    shard.reset()
    loader = DataLoader(shard, batch_size=None, num_workers=2)
    assert sorted(tuple(part) for part in loader) == [(0, 2, 2), (1, 2, 2)]


def test_a_loader_takes_the_samples_of_a_sampler() -> None:
    dataset = torch.arange(10)
    of_ranks = []
    for rank in range(2):
        sampler: Any = ShardSampler(dataset, shuffle=False, place=(rank, 2))
        loader: Any = DataLoader(dataset, batch_size=2, sampler=sampler)  # type: ignore[arg-type]
        of_ranks.append([batch.tolist() for batch in loader])
    assert of_ranks == [[[0, 2], [4, 6], [8]], [[1, 3], [5, 7], [9]]]


def test_an_elastic_state_returns_a_sampler_to_its_commit() -> None:
    sampler = ShardSampler(8, place=(0, 2))
    state = hvd.elastic.TorchState(sampler=sampler)
    sampler.record_batch(0, 2)
    state.save()
    sampler.record_batch(1, 2)
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 8}
    state.restore()
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 4}
    assert len(sampler) == 2
