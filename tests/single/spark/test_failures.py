"""What Spark says of a failure, in the words of who called `run`."""

from __future__ import annotations

import threading

import pytest

from sirtaki.spark.failures import explained, too_few, unpicklable


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[SPARK-24819]: Barrier execution mode does not allow", "fewer free slots than the 4"),
        ("[SPARK-24942]: Barrier execution mode does not support dynamic", "run_elastic"),
        (
            "Lost task 1.0 in stage 3.0 (TID 7) (10.0.0.2 executor 0): ExecutorLostFailure "
            "(executor 0 exited caused by one of the running tasks) Reason: worker lost",
            r"rank 3 \(node-b\) was lost with its executor: \(executor 0 exited",
        ),
        (
            "barrier task ResultTask(7, 1) finished unsuccessfully.\nExecutorLostFailure (x) y",
            r"rank 3 \(node-b\) was lost with its executor: \(x\) y",
        ),
        (
            "Lost task 0.0 in stage 3.0 (TID 7) (10.0.0.2 executor 0): ExecutorLostFailure (x)",
            r"task 0 \(10.0.0.2 executor 0\) was lost",
        ),
        ("ModuleNotFoundError: No module named 'sirtaki'", "PYSPARK_PYTHON"),
        ("ModuleNotFoundError: No module named 'mine.data'", "'mine.data': .*addPyFile"),
        (
            "AuthenticationError: version mismatch: host a runs Sirtaki 1, host b runs 2; install "
            "the same version on all hosts\n at java",
            "^version mismatch: host a runs Sirtaki 1, host b runs 2; install .* hosts$",
        ),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version 3.9", "PYSPARK_PYTHON"),
        ("anything else", "Spark job has failed.*\n.*anything else"),
    ],
)
def test_the_reason_of_a_stage_that_failed_is_said(text: str, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        raise RuntimeError(explained(Exception(text), 4, {1: (3, "node-b")}))


def test_a_function_that_cannot_be_sent_is_named() -> None:
    def train() -> None:
        lock.acquire()

    lock = threading.Lock()
    error = unpicklable(train, TypeError("cannot pickle '_thread.lock' object"))
    assert "train or its arguments cannot be sent to the ranks: cannot pickle" in str(error)


def test_the_number_of_tasks_that_have_started_is_said() -> None:
    assert "1 of 3 have started after 2 s" in too_few(1, 3, 2)
