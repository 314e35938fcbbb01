"""PyTorch on Spark: an estimator trains on a DataFrame, and its model predicts in Spark.

    spark-submit --master local[2] spark_torch_estimator.py

or plainly `python spark_torch_estimator.py`. Needs `pip install 'sirtaki[spark]'` and Java 17.
"""

import argparse
import os
import sys
import tempfile

import numpy as np
import torch
from pyspark.sql import SparkSession

from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator


def accuracy(outputs, labels):
    return ((outputs.flatten() > 0) == (labels > 0.5)).float().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--work-dir", help="where data and checkpoints go; all executors see it")
    args = parser.parse_args()

    # Spark's workers run this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("estimator")
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(f"local[{args.num_proc}]")
    spark = builder.getOrCreate()

    # Points inside of a circle are of one class, those outside of the other.
    points = np.random.default_rng(0).uniform(-1, 1, (args.rows, 2))
    inside = (points**2).sum(1) < 0.5
    rows = [(point.tolist(), float(label)) for point, label in zip(points, inside, strict=True)]
    train, test = spark.createDataFrame(rows, ["point", "inside"]).randomSplit([0.8, 0.2], seed=1)

    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    with tempfile.TemporaryDirectory() as folder:
        estimator = TorchEstimator(
            num_proc=args.num_proc,
            store=Store.create(args.work_dir or folder),
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
            loss=torch.nn.BCEWithLogitsLoss(),
            metrics=[accuracy],
            feature_cols=["point"],
            label_cols=["inside"],
            validation=0.1,
            batch_size=32,
            epochs=args.epochs,
            random_seed=1,
            verbose=0,
        )
        trained = estimator.fit(train)

    for entry in trained.getHistory():
        print(f"epoch {entry['epoch']}: validation loss {entry['validation']['loss']:.3f}")
    predicted = trained.transform(test)
    right = predicted.filter("(inside__output > 0) = (inside > 0.5)").count()
    print(f"test accuracy {right / test.count():.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
