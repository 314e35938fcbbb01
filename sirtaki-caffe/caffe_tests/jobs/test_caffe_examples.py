"""The example nets build and learn from what the makers of data make."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from caffe_tests import places
from caffe_tests.data.records import needs_leveldb
from sirtaki_caffe.data.layers.base import DataLayer
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST, TRAIN
from sirtaki_caffe.proto.text import read_net, read_solver

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NETS = ("mnist", "hdf5_classification", "siamese", "shapes", "models")
LAYOUT = "models/intel_optimized_models/multinode/alexnet_4nodes"
ALEXNET = f"{LAYOUT}/train_val.prototxt"
#: With the three statistics of each BatchNorm.
SHAPES_PARAMS = 145719


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the makers make, and links to the nets."""
    root = tmp_path_factory.mktemp("caffe")
    counts = {"make_imagenet_like_lmdb": 8, "make_siamese_pairs": 200, "make_shapes": 24}
    few = {maker: ["--count", str(count)] for maker, count in counts.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        for maker in sorted(path.stem for path in EXAMPLES.glob("make_*.py")):
            if maker == "make_siamese_pairs" and importlib.util.find_spec("plyvel") is None:
                continue
            arguments = ["--root", str(root), *few.get(maker, [])]
            assert importlib.import_module(maker).main(arguments) == 0
    for folder in NETS:
        (root / folder).symlink_to(EXAMPLES / folder)
    return root


@contextmanager
def built(root: Path, path: str, phase: int, **more: object) -> Iterator[Net]:
    """A net of the examples, with at most two images a batch."""
    proto = read_net(root / path)
    for layer in proto.layer:
        if layer.type in ("Data", "AnnotatedData"):
            layer.data_param.batch_size = 2
    net = Net(proto, phase=phase, seed=1, **more)
    try:
        yield net
    finally:
        for layer in net.layers:
            if isinstance(layer, DataLayer):
                layer.close()


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("mnist/lenet.prototxt", 431080),
        ("mnist/autoencoder.prototxt", 2837314),
        ("hdf5_classification/linear.prototxt", 10),
        ("hdf5_classification/nonlinear.prototxt", 282),
        pytest.param("siamese/siamese.prototxt", 431102, marks=needs_leveldb),
        ("shapes/ssd.prototxt", SHAPES_PARAMS),
        (ALEXNET, 60965224),
    ],
)
def test_a_net_has_its_params_and_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch, path: str, params: int
) -> None:
    monkeypatch.chdir(root)
    with built(root, path, TRAIN) as net:
        assert sum(param.data.numel() for param in net.learnable) == params
        assert math.isfinite(float(net.forward()))


@pytest.mark.parametrize(
    "path",
    [
        "mnist/lenet.prototxt",
        pytest.param("siamese/siamese.prototxt", marks=needs_leveldb),
        "shapes/ssd.prototxt",
        ALEXNET,
    ],
)
def test_a_test_net_builds_beside_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(root)
    with built(root, path, TRAIN), built(root, path, TEST) as net, torch.no_grad():
        assert math.isfinite(float(net.forward()))


def test_stages_choose_what_an_autoencoder_is_tested_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    solver = read_solver(root / "mnist/autoencoder_solver.prototxt")
    sources = []
    for state in solver.test_state:
        with built(root, solver.net, TEST, stages=list(state.stage)) as net:
            sources.append(net.proto.layer[0].data_param.source)
    assert sources == ["data/mnist_train_lmdb", "data/mnist_test_lmdb"]


def test_every_solver_names_a_net_that_is_there() -> None:
    solvers = [path for folder in NETS for path in (EXAMPLES / folder).rglob("*solver*.prototxt")]
    assert len(solvers) == 10
    for path in solvers:
        solver = read_solver(path)
        assert (EXAMPLES / (solver.net or solver.train_net)).is_file(), path


def test_every_file_that_the_readme_names_is_there() -> None:
    text = (EXAMPLES / "README.md").read_text().replace("$layout", LAYOUT)
    named = set(re.findall(r"[\w/.]+\.(?:py|prototxt)", text))
    made = {name for name in named if name.startswith("data/")}
    assert len(named) > 10
    for name in named - made:
        assert (EXAMPLES / name).is_file(), name


@pytest.mark.slow
def test_the_line_of_a_batch_script_starts_alexnet_on_four_processes(
    root: Path, tmp_path: Path
) -> None:
    """`mpirun … caffe train --solver …` with the layout as it is, but for one image a batch."""
    for folder in ("data", "examples"):
        (tmp_path / folder).symlink_to(root / folder)
    layout = tmp_path / LAYOUT
    layout.mkdir(parents=True)
    net = (root / ALEXNET).read_text()
    solver = (root / LAYOUT / "solver.prototxt").read_text()
    (layout / "train_val.prototxt").write_text(re.sub(r"batch_size: \d+", "batch_size: 1", net))
    short = re.sub(r"max_iter: \d+", "max_iter: 1", solver)
    (layout / "solver.prototxt").write_text(f"{short}\nsnapshot_after_train: false\n")
    mpirun = Path(sys.executable).with_name("mpirun")
    library = Path(os.path.realpath(mpirun)).parents[1] / "lib"
    done = subprocess.run(
        [
            *(mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "4"),
            *(*places.CAFFE, "train", "--solver", f"./{LAYOUT}/solver.prototxt"),
        ],
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=places.LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"Number of processes: (\d+)$", done.stderr, re.MULTILINE) == ["4"]
    (loss,) = re.findall(r"Iteration 0 \(.*loss = (\S+)", done.stderr)
    assert float(loss) == pytest.approx(math.log(1000), abs=0.5)
