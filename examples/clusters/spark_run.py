"""Training on ranks that Spark's tasks start, on rows of a DataFrame.

    spark-submit --master local[2] spark_run.py

or plainly `python spark_run.py`. Needs `pip install 'sirtaki[spark]'` and Java 17. The network
learns which points lie within a circle.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import numpy as np
from pyspark.sql import SparkSession

import horovod.spark


def train(folder: str, epochs: int) -> tuple[int, float]:
    """Train on one rank; return its number and the accuracy on the rows of all."""
    import torch

    import horovod.torch as hvd
    from sirtaki.data import ParquetShard

    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.02), model.named_parameters()
    )
    # Each rank reads rows of its own, and all make equally many steps.
    shard = ParquetShard(folder, batch_size=32)
    right = torch.zeros(2)
    for epoch in range(epochs):
        shard.set_epoch(epoch)
        right.zero_()
        for batch in shard:
            points = torch.from_numpy(np.stack([batch["x"], batch["y"]], axis=1)).float()
            inside = torch.from_numpy(batch["inside"]).float()
            optimizer.zero_grad()
            found = model(points).flatten()
            torch.nn.functional.binary_cross_entropy_with_logits(found, inside).backward()
            optimizer.step()
            right += torch.tensor([((found > 0) == (inside > 0.5)).sum(), len(inside)])
    right = hvd.allreduce(right, op=hvd.Sum)
    return hvd.rank(), float(right[0] / right[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--work-dir", help="where the rows go; all executors see it")
    args = parser.parse_args()

    # Spark's workers run this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("run")
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(f"local[{args.num_proc}]")
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as own:
        folder = f"{args.work_dir or own}/points"
        points = spark.range(4000).selectExpr("2 * rand(1) - 1 AS x", "2 * rand(2) - 1 AS y")
        points.selectExpr("x", "y", "x * x + y * y < 0.5 AS inside").write.parquet(folder)
        found = horovod.spark.run(train, (folder, args.epochs), num_proc=args.num_proc)
    print(f"ranks {[rank for rank, _ in found]}, accuracy {found[0][1]:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
