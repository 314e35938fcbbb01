"""What these tests share with all others."""

from __future__ import annotations

from tests.conftest import (
    _signals_are_not_ignored,
    job,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)

__all__ = [
    "_signals_are_not_ignored",
    "job",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
]
