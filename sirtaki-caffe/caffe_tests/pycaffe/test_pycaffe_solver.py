"""Solvers as scripts use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe_tests.nets import product
from sirtaki_caffe.errors import CaffeError

DATA = """
layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
  shape { dim: 2 dim: 3 } shape { dim: 2 dim: 2 }
  data_filler { value: 1 } data_filler { value: 2 } } }
"""
LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "target" top: "loss" }'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(DATA + product("a", "data", 2) + LOSS)
    path = tmp_path / "solver.prototxt"
    path.write_text(
        f'net: "{tmp_path}/net.prototxt" test_iter: 1 test_interval: 100 base_lr: 0.01 '
        f'lr_policy: "fixed" max_iter: 5 snapshot_prefix: "{tmp_path}/s" random_seed: 3\n'
    )
    return path


def test_a_gradient_of_1_takes_the_rate_from_every_weight(file: Path) -> None:
    solver = caffe.SGDSolver(str(file))
    for blob in solver.net.params["a"]:
        blob.data[...] = 0
        blob.diff[...] = 1
    solver.apply_update()
    for blob in solver.net.params["a"]:
        np.testing.assert_allclose(blob.data, -0.01, rtol=1e-6)


def test_updates_of_a_script_are_iterations_and_lower_the_rate(file: Path) -> None:
    file.write_text(file.read_text().replace('"fixed"', '"step" gamma: 0.1 stepsize: 1'))
    solver = caffe.SGDSolver(str(file))
    for blob in solver.net.params["a"]:
        blob.data[...] = 0
    for _ in range(3):
        for blob in solver.net.params["a"]:
            blob.diff[...] = 1
        solver.apply_update()
    assert solver.iter == 3
    np.testing.assert_allclose(solver.net.params["a"][0].data, -0.0111, rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("max_iter: 5", "max_iter: -5", "1:[0-9]+: max_iter: -5 must be at least 0"),
        ('"fixed"', '"fixet"', "1:[0-9]+: lr_policy: unknown learning rate policy 'fixet'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(file: Path, old: str, new: str, why: str) -> None:
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(CaffeError, match=f"{file}:{why}"):
        caffe.SGDSolver(str(file)).step(1)


def test_a_script_goes_backward_after_training_has_ended(file: Path) -> None:
    file.write_text(file.read_text() + "display: 5\n")
    solver = caffe.SGDSolver(str(file))
    solver.solve()
    solver.net.clear_param_diffs()
    solver.net.backward()
    assert solver.net.params["a"][0].diff.any()


def test_steps_are_counted_and_lower_the_loss(file: Path) -> None:
    solver = caffe.get_solver(file)
    solver.step(1)
    first = float(solver.net.blobs["loss"].data)
    solver.step(3)
    assert solver.iter == 4
    assert float(solver.net.blobs["loss"].data) < first
    assert solver.net.blobs["a"].diff.any()


def test_test_nets_have_the_weights_of_the_net(file: Path) -> None:
    solver = caffe.get_solver(str(file))
    solver.net.params["a"][0].data[...] = 5
    solver.net.params["a"][1].data[...] = 0
    solver.test_nets[0].forward()
    np.testing.assert_allclose(solver.test_nets[0].blobs["a"].data, 15)


def test_training_goes_on_from_a_snapshot(file: Path, tmp_path: Path) -> None:
    solver = caffe.get_solver(file)
    solver.step(2)
    solver.snapshot()
    solver.step(3)
    again = caffe.get_solver(file)
    again.restore(tmp_path / "s_iter_2.solverstate")
    assert again.iter == 2
    again.solve()
    assert again.iter == 5
    for mine, other in zip(again.net.params["a"], solver.net.params["a"], strict=True):
        np.testing.assert_allclose(mine.data, other.data, rtol=1e-6)


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_each_class_is_a_type_of_solver(file: Path, kind: str) -> None:
    if kind == "RMSProp":
        file.write_text(file.read_text() + "rms_decay: 0.9")
    solver = getattr(caffe, f"{kind}Solver")(file)
    assert solver.param.type == kind
    solver.step(1)
    assert solver.iter == 1


NORM = """
layer { name: "norm" type: "BatchNorm" bottom: "target" top: "norm" }
layer { name: "loss" type: "EuclideanLoss" bottom: "norm" bottom: "target" top: "loss" }
"""


@pytest.mark.parametrize(
    ("field", "number"),
    [("", 3), ("warmup_iter: 2", 5), ("stageiter: 2", 5), ('engine: "CAFFE" warmup_iter: 2', 3)],
)
def test_a_solver_of_intels_makes_a_batch_norm_affine(
    file: Path, tmp_path: Path, field: str, number: int
) -> None:
    (tmp_path / "net.prototxt").write_text(DATA + NORM)
    file.write_text(file.read_text() + field)
    assert len(caffe.get_solver(file).net.params["norm"]) == number


def test_test_nets_share_a_scale_that_came_with_the_weights(file: Path, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text('engine: "MKLDNN"\n' + DATA + NORM)
    path = tmp_path / "w.caffemodel"
    caffe.Net(tmp_path / "net.prototxt", caffe.TRAIN).save(path)
    (tmp_path / "net.prototxt").write_text(DATA + NORM)
    solver = caffe.get_solver(file)
    solver.engine.load_weights([str(path)])
    with_scale = solver.engine.net.layers[-2], solver.test_nets[0].engine.layers[-2]
    scales = [layer.params[3].data for layer in with_scale if layer.name == "norm"]
    assert len(scales) == 2
    assert scales[0].data_ptr() == scales[1].data_ptr()
