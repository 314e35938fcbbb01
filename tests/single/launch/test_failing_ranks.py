"""A test that fails on one rank ends the others' tests at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.single.launching import Job, python

TESTS = Path(__file__).resolve().parents[2]
HEAD = "import numpy, pytest, sirtaki as hvd\n"
AFTER_ALL_COLLECTIVES = """
def test_where_one_fails():
    hvd.allreduce(numpy.ones(1), name="sum")
    assert hvd.rank() != 1, "the first failure"
"""
WITH_A_COLLECTIVE_IN_ITS_TEARDOWN = """
@pytest.fixture
def together():
    yield
    hvd.barrier()

def test_where_one_fails(together):
    assert hvd.rank() != 1, "the first failure"
    hvd.allreduce(numpy.ones(1), name="sum")
"""
IN_ITS_SETUP = """
@pytest.fixture
def broken():
    assert hvd.rank() != 1, "the first failure"

def test_where_one_fails(broken):
    hvd.allreduce(numpy.ones(1), name="sum")
"""
TAIL = """
def test_that_is_never_begun():
    raise AssertionError("begun " + "here")
"""


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(AFTER_ALL_COLLECTIVES, id="after all", marks=pytest.mark.slow),
        pytest.param(
            WITH_A_COLLECTIVE_IN_ITS_TEARDOWN, id="before collectives, one of them in its teardown"
        ),
        pytest.param(IN_ITS_SETUP, id="in its setup", marks=pytest.mark.slow),
    ],
)
def test_a_failure_on_one_rank_ends_the_session_of_all(
    suite: str, job: Job, tmp_path: Path
) -> None:
    folder = tmp_path / "core"
    folder.mkdir()
    for name in ("conftest.py", "core/conftest.py"):
        (tmp_path / name).write_text((TESTS / "parallel" / name).read_text())
    (folder / "test_suite.py").write_text(HEAD + suite + TAIL)
    settings = ("-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(TESTS.parent))
    pytest_main = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ("-p", "no:cacheprovider", *settings)
    done = job.run("-np", "2", *python(pytest_main), *options, str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"rank 1 failed .*::test_where_one_fails", done.stdout)
    assert "[1]<stdout>:E       AssertionError: the first failure" in done.stdout
    assert "begun here" not in done.stdout
