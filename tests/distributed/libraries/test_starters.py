"""The examples for libraries run under each starter that their pages name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.distributed.jobs import ROOT, torchrun
from tests.single.launching import HOROVODRUN

LIMIT = 180
pytestmark = pytest.mark.timeout(LIMIT + 20)
PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = ROOT / "examples"
# Several processes, on CPUs too: `--cpu` alone starts one.
ACCELERATE = (
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"),
    *("--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"),
)
STARTERS: dict[str, Callable[[str], list[str]]] = {
    "horovodrun": lambda script: [*HOROVODRUN, "-np", "2", sys.executable, script],
    "torchrun": lambda script: torchrun(2, script),
    "accelerate launch": lambda script: [*ACCELERATE, script],
}
# Lightning and Accelerate in `make test-all`, under our own starter; everything in `make nightly`.
FIRST = pytest.mark.parametrize(
    "starter",
    [
        pytest.param(each, marks=pytest.mark.nightly if number else pytest.mark.slow)
        for number, each in enumerate(STARTERS)
    ],
)


def printed(starter: str, script: Path) -> str:
    done = subprocess.run(
        STARTERS[starter](str(script)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(told: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss (\d+\.\d+)", told)]


@FIRST
def test_accelerate_trains_on_our_groups(starter: str) -> None:
    needs.package("accelerate")
    told = printed(starter, EXAMPLES / "huggingface_accelerate.py")
    assert told.count("2 processes, moved by sirtaki") == 1
    assert losses(told)[-1] < losses(told)[0] / 10


@FIRST
def test_lightning_trains_with_our_strategy(starter: str) -> None:
    needs.package("lightning")
    told = printed(starter, EXAMPLES / "lightning_train.py")
    (accuracy,) = re.findall(r"2 ranks, accuracy (\d+\.\d+)", told)
    assert float(accuracy) > 0.9


@pytest.mark.nightly
@pytest.mark.parametrize("starter", STARTERS)
def test_the_trainer_of_transformers_trains_on_our_groups(starter: str) -> None:
    needs.package("transformers")
    told = printed(starter, EXAMPLES / "huggingface_trainer.py")
    assert told.count("2 processes, moved by sirtaki") == 1
    assert losses(told)[-1] < 0.01


@pytest.mark.nightly
def test_ignites_own_backend_for_horovod_works() -> None:
    needs.package("ignite")
    told = printed("horovodrun", PROGRAMS / "ignite_horovod.py")
    assert told.count("@equal on 2") == 2


@pytest.mark.nightly
def test_the_example_of_ignite_trains() -> None:
    needs.package("ignite")
    found = losses(printed("horovodrun", EXAMPLES / "ignite_train.py"))
    assert len(found) == 4
    assert found[-1] < found[0] / 1.5
