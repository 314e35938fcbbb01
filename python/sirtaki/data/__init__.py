"""Each rank's share of the data, and loaders that prepare batches during training."""

from sirtaki.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader
from sirtaki.data.parquet import ParquetShard
from sirtaki.data.sampler import ShardSampler
from sirtaki.data.shares import shard_huggingface, shard_tf_data, split_by_rank
from sirtaki.data.steps import equal_steps

__all__ = [
    "AsyncDataLoaderMixin",
    "BaseDataLoader",
    "ParquetShard",
    "ShardSampler",
    "equal_steps",
    "shard_huggingface",
    "shard_tf_data",
    "split_by_rank",
]
