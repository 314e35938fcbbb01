"""Ranks that mpirun starts end with the bits of one rank."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.slow

needs.package("torch")
MPIRUN = Path(sys.executable).with_name("mpirun")
if not MPIRUN.exists():
    pytest.skip(needs.missing("mpirun beside this Python"), allow_module_level=True)
PROGRAM = str(Path(__file__).resolve().parents[2] / "faults/elastic/reproducible.py")
VARIABLES = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "MODEL": "transformer",
    "STEPS": "6",
}


def hashes(*launcher: str) -> list[str]:
    done = subprocess.run(
        [*launcher, sys.executable, PROGRAM],
        env={**os.environ, **VARIABLES},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"hash (\w+)", done.stdout)


def test_one_to_four_ranks_have_the_same_bits() -> None:
    (expected,) = hashes()
    for ranks in (1, 2, 3, 4):
        assert hashes(str(MPIRUN), "-np", str(ranks)) == [expected] * ranks
