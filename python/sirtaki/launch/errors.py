"""The errors of the launcher, and the exit codes that go with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

FAILED = 1
USAGE = 2
# Ranks waited too long for others.
STALLED = 70
# The exit code of an elastic job whose processes left after a warning: requeue it.
REQUEUE = 75
CANNOT_EXECUTE = 126
NOT_FOUND = 127

ONLY_LINUX = (
    "sirtaki starts and watches processes on Linux only (WSL2 is Linux); elsewhere a script runs "
    "as a world of one, started with python"
)


class LaunchError(ValueError):
    """The job cannot be started as asked; `exit_code` is what the command line program returns."""

    def __init__(self, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class JobError(LaunchError, RuntimeError):
    """The job was started as asked, and something other than its processes' exit codes ended it."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message, exit_code)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turn a ValueError, such as a scheduler's, into a LaunchError."""
    try:
        yield
    except ValueError as error:
        raise LaunchError(str(error)) from None
