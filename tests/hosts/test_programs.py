"""What tests/parallel/core has for every way that messages take, on two virtual hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import GRACE, RUN

CORE = Path(__file__).resolve().parents[1] / "parallel/core"
PROGRAMS = ("test_random_programs.py", "test_pair_patterns.py", "test_float_state.py")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def run(bed: Bed, slots: int, *arguments: str) -> None:
    hosts = ",".join(f"{host.address}:{slots}" for host in bed.hosts[:2])
    job = (*RUN, "-np", str(2 * slots), "-H", hosts, "-p", str(SSH_PORT), *GRACE)
    done = bed.hosts[0].run(*job, *PYTEST, *arguments, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_programs_are_right_on_two_hosts(bed: Bed, slots: int) -> None:
    files = [str(CORE / name) for name in PROGRAMS]
    run(bed, slots, "-m", "not slow", *files)


@pytest.mark.slow
def test_a_gib_crosses_between_hosts(bed: Bed) -> None:
    run(bed, 1, "-m", "slow", str(CORE / "test_pair_patterns.py"))
