"""Lightning's Trainer and Fabric by the names of our strategies, under `horovodrun`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.jobs import ROOT, torchrun
from tests.pages import run_alone
from tests.single.launching import HOROVODRUN

PROGRAM = str(Path(__file__).parent / "programs/lightning_strategy.py")
LIMIT = 300
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * LIMIT)]

Learned = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """What two ranks learn with a strategy, which is run once."""
    found: dict[str, dict[str, Any]] = {}

    def run(strategy: str) -> dict[str, Any]:
        if strategy not in found:
            found[strategy] = told(strategy, tmp_path_factory.mktemp(strategy))
        return found[strategy]

    return run


def told(strategy: str, folder: Path) -> dict[str, Any]:
    ours = strategy != "ddp"
    arguments = (PROGRAM, strategy, "sirtaki" if ours else "gloo", str(folder))
    started = (*HOROVODRUN, "-np", "2", sys.executable, *arguments)
    done = subprocess.run(
        started if ours else torchrun(2, *arguments),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leaked" not in done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "@{" in line)
    answer: dict[str, Any] = json.loads(line[line.index("{") :])
    return answer


@pytest.mark.parametrize("part", ["each batch", "accumulation", "resumed", "fabric"])
def test_our_strategy_learns_what_ddp_learns(learned: Learned, part: str) -> None:
    assert learned("sirtaki")[part] == learned("ddp")[part]


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    before = """
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader
module, loader = BoringModel(), DataLoader(RandomDataset(32, 64), batch_size=8)
"""
    run_alone("howto/lightning", tmp_path, before)


def test_each_rank_trains_on_its_own_half_of_the_rows(learned: Learned) -> None:
    assert learned("sirtaki")["each batch"]["rows"] == 2 * 24


def test_the_strategy_named_horovod_scales_learning_rates_by_the_number_of_ranks(
    learned: Learned,
) -> None:
    rates = {name: learned(name)["each batch"]["rate"] for name in ("horovod", "sirtaki")}
    assert rates == {"sirtaki": 0.1 * 0.5**2, "horovod": 2 * 0.1 * 0.5**2}
