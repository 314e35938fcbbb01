"""What some tests need of the machine: without it they are skipped, as `missing: …`."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
from typing import Any

import pytest


def missing(what: str) -> str:
    """The reason to skip a test for want of something that the machine could have."""
    return f"missing: {what}"


def program(name: str) -> pytest.MarkDecorator:
    """The mark of tests that run a program."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=missing(name))


def installed(*names: str) -> pytest.MarkDecorator:
    """The mark of tests whose processes import packages, which this one need not do."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    reason = missing(f"the package {', '.join(absent)}")
    return pytest.mark.skipif(bool(absent), reason=reason)


def package(name: str) -> Any:
    """Import a package for a test, or for all of a file."""
    return pytest.importorskip(name, reason=missing(f"the package {name}"), exc_type=ImportError)


def open_files(count: int) -> pytest.MarkDecorator:
    """The mark of tests that hold so many files open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = most != resource.RLIM_INFINITY and most < count
    return pytest.mark.skipif(few, reason=missing(f"{count} open files (ulimit -Hn)"))


def mounting() -> pytest.MarkDecorator:
    """The mark of tests that mount file systems, which root in a container may not."""
    may = shutil.which("unshare") and not subprocess.call(
        ["unshare", "--mount", "true"], stderr=subprocess.DEVNULL
    )
    return pytest.mark.skipif(not may, reason=missing("the right to mount"))


root = pytest.mark.skipif(os.geteuid() != 0, reason=missing("root"))
