"""A plugin for pytest: tells coverage which test runs a line, here and in what it starts."""

from __future__ import annotations

import os
from collections.abc import Generator

import coverage
import pytest

VARIABLE = "MUTANTS_TEST"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test function: of all its parameters, since one fault may matter to any."""
    test = item.nodeid.partition("[")[0]
    os.environ[VARIABLE] = test
    measuring = coverage.Coverage.current()
    assert measuring is not None
    measuring.switch_context(test)
    try:
        return (yield)
    finally:
        measuring.switch_context("")
        del os.environ[VARIABLE]
