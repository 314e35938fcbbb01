"""Ranks share out datasets of tf.data."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd
from sirtaki.data import shard_tf_data


def numbers(dataset: Any) -> list[int]:
    return [int(number) for number in dataset]


@pytest.mark.parametrize("count", [0, 2, 12, 13])
def test_a_dataset_is_shared(count: int) -> None:
    dataset = tf.data.Dataset.range(count)
    rank, size = hvd.rank(), hvd.size()
    whole = count // size * size
    assert numbers(shard_tf_data(dataset)) == list(range(rank, whole, size))
    assert numbers(shard_tf_data(dataset, "join")) == list(range(rank, count, size))
    padded = [*range(count), *(number % max(count, 1) for number in range(-count % size))]
    assert numbers(shard_tf_data(dataset, "pad")) == (padded[rank::size] if count else [])


def test_a_dataset_without_a_length_says_what_to_do() -> None:
    dataset = tf.data.Dataset.range(6).filter(lambda number: number > 1)
    with pytest.raises(ValueError, match="assert_cardinality"):
        shard_tf_data(dataset)
    known = dataset.apply(tf.data.experimental.assert_cardinality(4))
    assert len(numbers(shard_tf_data(known))) == 4 // hvd.size()


def test_a_dataset_without_an_end_has_no_end() -> None:
    endless = shard_tf_data(tf.data.Dataset.range(5).repeat()).take(2)
    assert numbers(endless) == [hvd.rank() % 5, (hvd.rank() + hvd.size()) % 5]
