"""A Ray of one node with four CPUs, which may be more than there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import needs

ray = needs.package("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
