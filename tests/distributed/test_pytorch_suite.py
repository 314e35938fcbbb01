"""PyTorch's own suite for process groups, which is part of its wheel, passes on ours.

At two and three ranks all of it runs. At four only the tests of groups do: nothing runs there that
does not run at three, for what asks for four ranks asks for GPUs, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.suite_pool import WORKER, Pool

pytestmark = pytest.mark.timeout(900)

LIMIT = 60
# What Gloo passes, or skips, and we do not.
LEFT_OUT = {
    "test_get_backend": "asks for the name itself",
    "test_batch_isend_irecv_mixed_backend_err": "makes groups of NCCL",
    "test_batch_isend_irecv_op_err": "needs GPUs",
    "test_ddp_get_bucket_sizes": "needs GPUs",
    "test_new_subgroups": "needs GPUs",
    "SyncBatchNorm": "needs GPUs and torchvision",
    "cuda": "needs GPUs",
    "nccl": "needs GPUs",
}


def names() -> list[str]:
    env = {**os.environ, "BACKEND": "sirtaki", "WORLD_SIZE": "2", "RANK": "0", "TEMP_DIR": "/tmp"}
    listed = subprocess.run(
        [sys.executable, str(WORKER), "--list"], env=env, capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(listed.stdout)
    return [name for name in found if not any(part in name for part in LEFT_OUT)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "part", "fewest"),
    [
        pytest.param(2, "test", 102, marks=pytest.mark.nightly),
        (3, "test", 126),
        pytest.param(4, "group", 51, marks=pytest.mark.nightly),
    ],
)
def test_what_passes_on_gloo_passes_on_our_groups(
    size: int, part: str, fewest: int, pools: dict[int, Pool], tmp_path: Path
) -> None:
    asked = [name for name in names() if part in name]
    outcomes = {name: pools[size].run(name, tmp_path / name, LIMIT) for name in asked}
    failed = {name: found.text for name, found in outcomes.items() if found.outcome == "failed"}
    assert failed == {}, sorted(failed)
    passed = [name for name, found in outcomes.items() if found.outcome == "passed"]
    print(f"{len(passed)} passed at {size} ranks")
    assert len(passed) >= fewest
