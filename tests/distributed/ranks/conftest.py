"""Each rank of a torchrun job runs these tests, in the same order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "sirtaki")


@pytest.fixture(scope="session", autouse=True)
def default_group() -> Iterator[None]:
    """The default group of all tests."""
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=60))
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def together() -> None:
    """A test begins when all ranks have ended the one before."""
    dist.barrier()
