"""The errors of the launcher, and the exit codes that go with them."""

from __future__ import annotations

FAILED = 1
USAGE = 2
# Ranks waited for too long for others.
STALLED = 70
# What an elastic job exits with when all have left on a warning and it is to be run again.
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
