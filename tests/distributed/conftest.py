"""What the tests of `torch.distributed` on our groups share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.jobs import Forks
from tests.distributed.suite_pool import Pool


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """What starts ranks without importing PyTorch for each."""
    made = Forks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Pool]]:
    """The ranks that run PyTorch's suite, by their number; started when they are used."""
    made = {
        size: Pool("sirtaki", size, tmp_path_factory.mktemp(f"pool{size}") / "log")
        for size in (2, 3, 4)
    }
    yield made
    for pool in made.values():
        pool.close()
