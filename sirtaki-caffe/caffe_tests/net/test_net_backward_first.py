"""Backward passes without a forward pass that has kept what they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from caffe_tests.nets import build, fill, inputs, loss, product
from sirtaki_caffe.net.net import Net

DATA = inputs("data", (2, 3), "target", (2, 2))
TRAINED = DATA + product("a", "data", 2) + loss("a", "target", more="loss_weight: 3")
TEN = (
    'layer { name: "ten" type: "Python" bottom: "data" top: "y" python_param '
    '{ module: "caffe_tests.layers.python_layers" layer: "TenTimes" } }\n'
)
NORM = 'layer { name: "n" type: "BatchNorm" bottom: "x" top: "y" loss_weight: 1 }\n'


def without_gradients(net: Net) -> None:
    with torch.no_grad():
        net.forward()


def first_layer_alone(net: Net) -> None:
    net.forward(0, 1)


@pytest.mark.parametrize("before", [without_gradients, first_layer_alone])
def test_a_layer_goes_backward_from_the_values_that_its_blobs_have(
    before: Callable[[Net], None],
) -> None:
    reference, net = build(TRAINED), build(TRAINED)
    for each in (reference, net):
        fill(each)
    reference.forward()
    reference.backward()
    before(net)
    net.backward()
    for param, other in zip(net.learnable, reference.learnable, strict=True):
        assert param.diff.equal(other.diff)


def test_before_any_forward_blobs_hold_zeros() -> None:
    net = build(TRAINED)
    fill(net)
    net.backward()
    # 3 / 2 (a - target) of each item, with a = 0.
    assert net.learnable[1].diff.allclose(-1.5 * net.blobs["target"].data.sum(0))


def test_a_python_layer_is_asked_for_gradients_alone() -> None:
    net = build("force_backward: true\n" + inputs("data", (2,)) + TEN)
    net.blobs["data"].data = torch.tensor([1.0, 2.0], dtype=torch.float64)
    net.blobs["y"].diff = torch.full((2,), 7.0, dtype=torch.float64)
    net.backward()
    assert net.blobs["data"].diff.tolist() == [70, 70]
    assert net.blobs["y"].data.tolist() == [0, 0]


def test_what_an_earlier_forward_kept_is_dropped_with_its_shape() -> None:
    net = build(
        "force_backward: true\n" + inputs("data", (2, 3)) + product("a", "data", 1),
        keep_graphs=True,
    )
    net.forward()
    net.blobs["data"].reshape((5, 3))
    net.reshape()
    net.blobs["a"].diff = torch.ones(5, 1, dtype=torch.float64)
    net.backward()
    assert net.blobs["data"].diff.equal(net.learnable[0].data.expand(5, 3))


def test_a_batch_norm_learns_nothing_from_a_backward() -> None:
    net = build(inputs("data", (4, 3)) + product("x", "data", 2) + NORM)
    fill(net)
    without_gradients(net)
    before = [param.data.clone() for param in net.layers[-1].params]
    net.backward()
    assert all(p.data.equal(b) for p, b in zip(net.layers[-1].params, before, strict=True))
