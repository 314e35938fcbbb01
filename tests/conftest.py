"""What tests of all folders share."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import alone
from tests.single.launching import Job

TESTS = Path(__file__).resolve().parent
# Folders in which every test starts processes.
JOBS = ("faults", "hosts")


def pytest_configure(config: pytest.Config) -> None:
    """Give hypothesis the seed of this run, which a failed test shows."""
    # A rank shares the folder of its launcher, which asks it there when tests hang.
    if "HOROVOD_RANK" not in os.environ:
        # Else jobs of two test processes, bound to the same cores, would tell of each other.
        records = tempfile.mkdtemp(prefix="sirtaki-tests-")
        atexit.register(shutil.rmtree, records, ignore_errors=True)
        os.environ["SIRTAKI_RUNTIME_DIR"] = records
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = os.environ.setdefault("SIRTAKI_TEST_SEED", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts jobs or needs root by where it is and what it uses."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
        if folder in JOBS or "job" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.job)
        if folder == "hosts":
            item.add_marker(pytest.mark.root)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where all tests of a folder are in another tier, running none of them is no failure."""
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.markexpr:
        session.exitstatus = pytest.ExitCode.OK


# After the hooks that end a session of several ranks, which show the report.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("to run it alone", alone.command(item.nodeid)))
    return report


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
