"""A worker of `run` that cannot begin says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.single.launching import LIMIT


def worker(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sirtaki.launch.task"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **variables},
        check=False,
    )


def test_a_host_without_the_shared_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    missing = str(tmp_path / "secret")
    place = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    store = "tcp:127.0.0.1:9"
    done = worker(**place, SIRTAKI_RENDEZVOUS=store, SIRTAKI_SECRET_FILE=missing)
    assert done.returncode == 1
    assert done.stderr.startswith("rank 1 (")
    assert f"{missing}, is not on this host; set SIRTAKI_SHARED_DIR" in done.stderr


def test_a_worker_without_a_rank_says_so() -> None:
    done = worker(SIRTAKI_SECRET_FILE="/dev/null")
    assert done.returncode == 1
    assert "what started this worker does not tell its rank" in done.stderr
