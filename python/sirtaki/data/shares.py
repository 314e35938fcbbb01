"""Shards of datasets that divide themselves: tf.data, Hugging Face, WebDataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sirtaki.data import plan


def shard_tf_data(
    dataset: Any, even: plan.Even = "drop", place: tuple[int, int] | None = None
) -> Any:
    """Return this rank's share of a `tf.data.Dataset`.

    Call it before `shuffle`, `batch` and other costly steps.

    Args:
        dataset: The dataset, equal and in the same order on all ranks.
        even: As for `ShardSampler`.
        place: Rank and number of ranks, if different from the world's.

    Returns:
        A dataset: every size-th sample.

    Raises:
        ValueError: If samples are to be dropped or repeated and the dataset's length is unknown.
    """
    plan.require_even(even)
    rank, size = plan.place_of(place)
    count = int(dataset.cardinality())
    if even != "join" and count >= 0:
        missing = -count % size
        if even == "drop":
            dataset = dataset.take(count - count % size)
        elif missing and count:
            dataset = dataset.concatenate(dataset.repeat().take(missing))
    elif even != "join" and count != -1:  # -1: infinite
        raise ValueError(
            f"even={even!r}: this tf.data.Dataset does not know its length; tell it with "
            "dataset.apply(tf.data.experimental.assert_cardinality(count)), or use even='join' "
            "and put the batches into sirtaki.data.equal_steps"
        )
    return dataset.shard(size, rank)


def shard_huggingface(
    dataset: Any, even: plan.Even = "drop", place: tuple[int, int] | None = None
) -> Any:
    """Return this rank's share of a dataset of Hugging Face's `datasets`.

    Args:
        dataset: A `Dataset`, or an `IterableDataset`, which workers of a `DataLoader` share by
            themselves.
        even: As for `ShardSampler`. A stream has no length and takes `"join"` only.
        place: Rank and number of ranks, if different from the world's.

    Returns:
        A dataset of the same kind; for a `Dataset`, adjacent rows, which are fast to read.

    Raises:
        ValueError: If samples of a stream are to be dropped or repeated.
    """
    plan.require_even(even)
    rank, size = plan.place_of(place)
    if hasattr(dataset, "select"):
        mine = plan.cut([(0, len(dataset))], rank, size, even)
        if len(mine) == 1:
            return dataset.select(range(*mine[0]))
        rows = [np.arange(*each) for each in mine]
        return dataset.select(np.concatenate([np.arange(0), *rows]))
    if even != "join":
        raise ValueError(
            f"even={even!r}: an IterableDataset does not know its length; use even='join' and put "
            "the batches into sirtaki.data.equal_steps"
        )
    from datasets.distributed import split_dataset_by_node

    return split_dataset_by_node(dataset, rank=rank, world_size=size)


def split_by_rank(urls: Iterable[Any]) -> Iterator[Any]:
    """Yield this rank's shards: ``WebDataset(urls, nodesplitter=split_by_rank)``.

    WebDataset itself divides them among the workers of a `DataLoader`. Shards have different
    numbers of samples, so pass the batches to `equal_steps`.

    Args:
        urls: The URLs of all shards, in the same order on all ranks.

    Returns:
        An iterator of every size-th URL.

    Raises:
        ValueError: If there are fewer shards than ranks.
    """
    rank, size = plan.place_of(None)
    known = list(urls)
    if len(known) < size:
        raise ValueError(
            f"{len(known)} shards cannot feed {size} ranks: write more and smaller shards, or "
            "sample them with resampled=True"
        )
    yield from known[rank::size]
