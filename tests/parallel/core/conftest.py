"""Every rank runs these tests, the same ones in the same order: horovodrun -np N pytest …"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sirtaki


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[None]:
    sirtaki.init(process_sets="dynamic")
    yield
    sirtaki.shutdown()


@pytest.fixture(autouse=True)
def same_start() -> None:
    """Tests begin together."""
    sirtaki.barrier()
