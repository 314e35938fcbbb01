"""The bed of virtual hosts for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.bed import Bed, reason_to_skip


@pytest.fixture(scope="session")
def shared_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    with Bed(3, tmp_path_factory.mktemp("bed")) as bed:
        yield bed


@pytest.fixture
def bed(shared_bed: Bed) -> Iterator[Bed]:
    """Three connected hosts on which nothing runs, and on which nothing may be left running."""
    yield shared_bed
    for host in shared_bed.hosts:
        host.reconnect()
    shared_bed.wait_until_idle()
