"""Processes that a starter of PMIx has started, which knows nothing of MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRTERUN = Path(sys.executable).with_name("prterun")
if not PRTERUN.exists():
    pytest.skip("MPICH has no starter of PMIx", allow_module_level=True)

CODE = "import sirtaki as hvd; hvd.init(); print(hvd.rank(), hvd.size(), hvd.local_size())"


def prterun(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(str(PRTERUN), "--allow-run-as-root", "--personality", "prte"),
            *("--map-by", ":OVERSUBSCRIBE", "-np", "2", *options, sys.executable, "-c", CODE),
        ],
        env={**os.environ, "HOROVOD_START_TIMEOUT": "30"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_they_join_when_they_know_how_many_they_are() -> None:
    done = prterun("-x", "WORLD_SIZE=2")
    assert sorted(done.stdout.split("\n")) == ["", "0 2 2", "1 2 2"], done.stderr


def test_they_do_not_train_alone_without_a_word() -> None:
    done = prterun()
    assert done.returncode != 0
    assert "not of how many: give all ranks their number in WORLD_SIZE" in done.stderr
