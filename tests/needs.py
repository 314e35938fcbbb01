"""What some tests need of the machine: without it they are skipped, as `missing: …`."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest


def missing(what: str) -> str:
    """The reason to skip a test for want of something that the machine could have."""
    return f"missing: {what}"


def program(name: str) -> pytest.MarkDecorator:
    """The mark of tests that run a program."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=missing(name))


def package(name: str) -> Any:
    """Import a package for a test, or for all of a file."""
    return pytest.importorskip(name, reason=missing(f"the package {name}"), exc_type=ImportError)


root = pytest.mark.skipif(os.geteuid() != 0, reason=missing("root"))
