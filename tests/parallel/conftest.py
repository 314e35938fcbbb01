"""A rank whose test fails ends the world at once, so that no other waits for it to a timeout."""

from __future__ import annotations

from collections.abc import Generator

import pytest

import sirtaki
from tests.first_failure import show


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and not item.session.shouldfail:
        rank = sirtaki.rank() if sirtaki.is_initialized() else "without a world"
        # Once the world has ended, the launcher may end this process at any time.
        show(item, report, rank)
        sirtaki.shutdown()
        item.session.shouldfail = f"rank {rank} stops at its first failure"
    return report
