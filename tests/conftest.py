"""What tests of all folders share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.single.launching import Job


@pytest.fixture
def job() -> Iterator[Job]:
    """A launcher's job, of which nothing may be left running."""
    job = Job()
    yield job
    job.wait_until_gone()


@pytest.fixture(scope="session", autouse=True)
def _signals_are_not_ignored() -> Iterator[None]:
    """Under nohup or in a shell's background they are, and a launcher would keep it so."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
