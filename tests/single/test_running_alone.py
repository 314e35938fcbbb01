"""A test that fails says how it is run alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.alone import command
from tests.single.launching import Job

ROOT = Path(__file__).resolve().parents[2]
PYTEST = "-m pytest -p no:cacheprovider a.py::b"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, f".venv/bin/python {PYTEST}"),
        ({"SIRTAKI_TEST_SEED": "5"}, f"SIRTAKI_TEST_SEED=5 .venv/bin/python {PYTEST}"),
        (
            {"HOROVOD_SIZE": "3", "OMP_NUM_THREADS": "1"},
            f"OMP_NUM_THREADS=1 .venv/bin/horovodrun -np 3 .venv/bin/python {PYTEST}",
        ),
        (
            {"HOROVOD_SIZE": "2", "KERAS_BACKEND": "jax"},
            f"KERAS_BACKEND=jax .venv/bin/horovodrun -np 2 .venv/bin/python {PYTEST}",
        ),
        (
            {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"},
            f".venv/bin/python -m torch.distributed.run --nproc-per-node 2 {PYTEST}",
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "SIRTAKI_BACKEND": "mpi"},
            "SIRTAKI_BACKEND=mpi .venv/bin/mpirun --allow-run-as-root --oversubscribe -np 2 "
            f".venv/bin/python {PYTEST}",
        ),
        ({"PMI_SIZE": "2"}, f".venv-mpich/bin/mpirun -np 2 .venv-mpich/bin/python {PYTEST}"),
    ],
)
def test_the_command_has_the_ranks_and_what_was_chosen(
    environ: dict[str, str], wanted: str
) -> None:
    assert command("a.py::b", environ) == wanted


def test_libraries_are_run_in_their_own_environment() -> None:
    shown = command("tests/distributed/libraries/a.py::b", {})
    assert shown.startswith(".venv-libraries/bin/python -m pytest")


FAILING = """
import sirtaki

def test_on_one_rank():
    sirtaki.init()
    assert sirtaki.rank() == 0
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_failure_shows_the_command(ranks: int, job: Job) -> None:
    folder = ROOT / "tests" / ("single" if ranks == 1 else "parallel")
    test = folder / f"test_that_fails_{job.mark}.py"
    test.write_text(FAILING if ranks > 1 else "def test_on_one_rank():\n    assert False\n")
    arguments = ("-q", "-p", "no:cacheprovider", str(test))
    try:
        if ranks > 1:
            pytest_run = (sys.executable, "-m", "pytest", *arguments)
            done = job.run("-np", str(ranks), *pytest_run, SIRTAKI_TEST_SEED="7")
        else:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *arguments],
                env={**job.environment, "SIRTAKI_TEST_SEED": "7"},
                capture_output=True,
                text=True,
                check=False,
            )
    finally:
        test.unlink()
    starter = f".venv/bin/horovodrun -np {ranks} " if ranks > 1 else ""
    name = f"{test.relative_to(ROOT)}::test_on_one_rank"
    line = f"{starter}.venv/bin/python -m pytest -p no:cacheprovider {name}"
    assert "SIRTAKI_TEST_SEED=7 " in done.stdout
    assert line in done.stdout
