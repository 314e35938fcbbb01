"""All ranks run every test of this folder together."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd
from tests.parallel.conftest import pytest_runtest_makereport  # noqa: F401

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[None]:
    hvd.init(process_sets="dynamic")
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def together(world: None) -> Iterator[None]:
    """No rank begins the next test while another is in this one."""
    yield
    hvd.barrier()
