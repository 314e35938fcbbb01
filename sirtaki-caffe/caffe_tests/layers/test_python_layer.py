"""Layers written in Python, with blobs in NumPy."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

from caffe_tests.nets import build, fill, inputs, loss, product
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST, TRAIN

DATA = inputs("data", (2, 3), "target", (2, 2))
MODULE = "caffe_tests.layers.python_layers"


def python(
    cls: str, bottoms: str, top: str, *, module: str = MODULE, param: str = "", more: str = ""
) -> str:
    named = " ".join(f'bottom: "{name}"' for name in bottoms.split())
    return (
        f'layer {{ name: "mine" type: "Python" {named} top: "{top}" {more} '
        f"python_param {{ module: '{module}' layer: '{cls}' param_str: '{param}' }} }}\n"
    )


def both(text: str, other: str) -> tuple[Net, Net]:
    nets = build(text), build(other)
    for net in nets:
        fill(net)
        net.forward()
        net.backward()
    return nets


def test_a_loss_in_python_trains_as_the_one_it_copies() -> None:
    start = DATA + product("a", "data", 2)
    mine = python("Euclidean", "a target", "loss", more="loss_weight: 1")
    net, reference = both(start + mine, start + loss("a", "target"))
    assert float(net.forward()) == pytest.approx(float(reference.forward()), rel=1e-12)
    for param, other in zip(net.learnable, reference.learnable, strict=True):
        assert param.diff is not None
        assert param.diff.allclose(other.diff)


def test_its_own_blobs_learn_and_its_bottom_gets_a_gradient() -> None:
    middle = python("Affine", "a", "mine", param='{"scale": 1}')
    text = DATA + product("a", "data", 2)
    net, reference = both(text + middle + loss("mine", "target"), text + loss("a", "target"))
    assert net.learnable_names == ["a.0", "a.1", "mine.0", "mine.1"]
    assert net.learnable[0].diff.allclose(reference.learnable[0].diff)
    assert net.learnable[3].diff.allclose(reference.learnable[1].diff)
    scale = net.learnable[2]
    with torch.no_grad():
        scale.data += 1e-6
        slope = float(net.forward())
        scale.data -= 2e-6
        slope = (slope - float(net.forward())) / 2e-6
    assert slope == pytest.approx(float(scale.diff), rel=1e-6)


def test_gradients_of_its_blobs_add_up_until_they_are_cleared() -> None:
    text = DATA + python("Affine", "target", "mine", param='{"scale": 2}')
    net = build(text + loss("mine", "target"))
    fill(net)
    net.forward()
    net.backward()
    once = net.learnable[1].diff.clone()
    net.forward()
    net.backward()
    assert net.learnable[1].diff.allclose(2 * once)
    net.clear_diffs()
    assert net.learnable[1].diff is None


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_it_knows_its_phase(phase: int) -> None:
    net = build(inputs("data", (2,)) + python("Phase", "data", "mine"), phase=phase)
    net.forward()
    assert float(net.blobs["mine"].data) == phase


def test_an_exception_names_the_layer_and_keeps_where_it_came_from() -> None:
    net = build(inputs("data", (2,)) + python("Failing", "data", "mine"))
    why = r"layer 'mine' \(Python\): forward failed: OSError: the camera is off"
    with pytest.raises(LayerError, match=why) as caught:
        net.forward()
    assert isinstance(caught.value.__cause__, OSError)
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise OSError("the camera is off")' in text


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (python("Euclidean", "data", "x"), "setup failed: ValueError: two bottoms are needed"),
        (python("Affine", "data", "x", param="no json"), "setup failed: JSONDecodeError"),
        (
            python("X", "data", "x"),
            "class 'X' of module 'caffe_tests.layers.python_layers' cannot be",
        ),
        (python("X", "data", "x", module="not_there"), "ModuleNotFoundError: .*'not_there'"),
        (python("", "data", "x"), "names no module and layer"),
    ],
)
def test_what_cannot_be_made_is_refused_when_the_net_is_built(layer: str, why: str) -> None:
    with pytest.raises(LayerError, match=rf"layer 'mine' \(Python\): .*{why}"):
        build(DATA + layer)


def test_its_module_is_found_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_test.py").write_text(
        "import caffe\n"
        "class Twice(caffe.Layer):\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    net = build(inputs("data", (2,)) + python("Twice", "data", "y", module="module_of_a_test"))
    fill(net)
    net.forward()
    assert np.array_equal(net.blobs["y"].data, 2 * net.blobs["data"].data)
