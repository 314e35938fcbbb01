"""A tf.data service whose workers are Spark tasks.

spark-submit compute_worker.py /shared/folder/config.json
python -m horovod.spark.tensorflow.compute_worker /shared/folder/config.json
"""

from __future__ import annotations

import os

from sirtaki.spark.runner import run
from sirtaki.tensorflow.data import compute_worker


def main(
    dispatchers: int, dispatcher_side: str, filename: str | os.PathLike[str], timeout: float
) -> None:
    """Run the compute job on Spark, with one worker per task, until its service is shut down.

    It uses the existing Spark session, or creates one.

    Args:
        dispatchers: The number of dispatchers.
        dispatcher_side: "compute" or "training": the job that runs the dispatchers.
        filename: The configuration file, which the training job reads; all of Spark's workers need
            access to its folder.
        timeout: Seconds to wait for dispatchers and workers.

    Raises:
        SparkRunError: A worker has failed.
    """
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    run(compute_worker.main, args=(dispatchers, dispatcher_side, os.fspath(filename), timeout))


if __name__ == "__main__":
    given = compute_worker.parse("python -m horovod.spark.tensorflow.compute_worker", "with Spark")
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
