"""The wheels that `make wheels` has built, and what the source build computes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "wheelhouse"
PROGRAM = Path(__file__).with_name("rank_program.py")
LIMIT = 1200


def wheel(*parts: str) -> Path:
    """The built wheel of sirtaki whose name has all these parts."""
    found = [one for one in WHEELS.glob("sirtaki-*.whl") if all(part in one.name for part in parts)]
    assert len(found) == 1, f"{parts}: {[one.name for one in found]} in {WHEELS}; see make wheels"
    return found[0]


def run_ranks(launcher: list[str], ranks: int, python: str, **extra: str) -> dict[str, Any]:
    """What the program prints on rank 0, run by a launcher on so many ranks of a Python."""
    done = subprocess.run(
        [*launcher, "-np", str(ranks), python, str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **extra},
        check=False,
    )
    found = re.search(r"RESULT (\{.*\})", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found is not None, done.stdout
    result: dict[str, Any] = json.loads(found[1])
    return result


@pytest.fixture(scope="session")
def from_source() -> dict[int, dict[str, Any]]:
    """Results of the package in this environment, which GCC has built, at 1, 2 and 3 ranks."""
    launcher = [str(Path(sys.executable).with_name("horovodrun"))]
    return {ranks: run_ranks(launcher, ranks, sys.executable) for ranks in (1, 2, 3)}
