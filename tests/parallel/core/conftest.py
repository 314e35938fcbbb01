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


@pytest.fixture(scope="module")
def sets() -> Iterator[list[sirtaki.ProcessSet]]:
    """The world and, where there are enough ranks, two that overlap."""
    made = []
    if sirtaki.size() > 2:
        made = [
            sirtaki.add_process_set(range(sirtaki.size() - 1)),
            sirtaki.add_process_set(range(1, sirtaki.size())),
        ]
    yield [sirtaki.global_process_set, *made]
    for process_set in made:
        sirtaki.remove_process_set(process_set)
