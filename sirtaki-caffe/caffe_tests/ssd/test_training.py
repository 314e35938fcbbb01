"""A small SSD on drawn rectangles: alone, and by several processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from caffe_tests import places
from caffe_tests.ssd.shapes import drawn, net_text, solver_text, write_records

BATCH = 12


def train(folder: Path, processes: int, iterations: int) -> list[str]:
    """Train with a batch of BATCH in all; returns the log."""
    (folder / f"net{processes}").write_text(
        net_text(folder / "train", folder / "test", BATCH // processes)
    )
    solver = folder / f"solver{processes}"
    solver.write_text(
        solver_text(folder / f"net{processes}", folder / f"by{processes}", iterations)
    )
    launcher = () if processes == 1 else (*places.HOROVODRUN, "-np", str(processes))
    done = subprocess.run(
        [*launcher, *places.CAFFE, "train", f"--solver={solver}", "--logtostderr"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=places.LIMIT,
        env=places.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return places.log_text(done.stderr)


def shown(log: list[str]) -> float:
    (line,) = (line for line in log if "Test net output #0: detection_eval" in line)
    return float(line.split("= ")[1])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rectangles")
    write_records(folder / "train", drawn(96))
    write_records(folder / "test", drawn(24, seed=1))
    return folder


@pytest.mark.slow
def test_it_learns_to_find_rectangles(data: Path) -> None:
    assert shown(train(data, 1, 150)) > 0.8


@pytest.mark.job
@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_train_and_detect_as_one(data: Path, processes: int) -> None:
    alone = shown(train(data, 1, 6))
    together = shown(train(data, processes, 6))
    own, others = (
        places.weights(data / f"by{count}_iter_6.caffemodel") for count in (processes, 1)
    )
    places.assert_same_weights(own, others, 1e-5)
    assert together == pytest.approx(alone, abs=1e-3)
