"""A plugin for pytest: tells coverage which test runs a line, here and in what it starts."""

from __future__ import annotations

import os
from collections.abc import Generator

import coverage
import pytest

# What coverage tells the processes that a test starts.
SETTINGS = "COVERAGE_PROCESS_CONFIG"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test function: of all its parameters, since one fault may matter to any."""
    test = item.nodeid.partition("[")[0]
    measuring = coverage.Coverage.current()
    assert measuring is not None
    before = os.environ[SETTINGS]
    measuring.config.context = test
    os.environ[SETTINGS] = measuring.config.serialize()
    measuring.switch_context(test)
    try:
        return (yield)
    finally:
        measuring.switch_context("")
        measuring.config.context = None
        os.environ[SETTINGS] = before
