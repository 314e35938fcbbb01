"""Well-known nets are built, with the sizes that were published for them."""

from __future__ import annotations

import pytest
import torch

from caffe_tests.nets import message
from caffe_tests.zoo import NETS, alexnet, googlenet, lenet
from sirtaki_caffe.layers.base import same_order
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST, TRAIN


def learned(net: Net) -> int:
    return sum(param.data.numel() for param in net.learnable if param.learns)


def test_every_net_of_the_zoo_has_as_many_params_as_published() -> None:
    wrong = {}
    for name, (write, parameters) in NETS.items():
        net = Net(message(write().text), phase=TRAIN)
        if learned(net) != parameters:
            wrong[name] = learned(net)
        assert all(param.diff is None for param in net.learnable)
    assert wrong == {}


def test_the_deploy_net_of_googlenet_has_no_heads() -> None:
    net = Net(message(googlenet("deploy", 1).text), phase=TEST)
    assert learned(net) == 6998552
    assert [step.layer.name for step in net.steps if step.needs_backward] == []


def test_alexnets_blobs_have_the_published_shapes() -> None:
    net = Net(message(alexnet(batch=1).text), phase=TRAIN)
    shapes = {name: net.blobs[name].shape for name in ("conv1", "pool1", "conv2", "pool2", "pool5")}
    assert shapes == {
        "conv1": (1, 96, 55, 55),
        "pool1": (1, 96, 27, 27),
        "conv2": (1, 256, 27, 27),
        "pool2": (1, 256, 13, 13),
        "pool5": (1, 256, 6, 6),
    }


def test_googlenet_adds_up_three_losses() -> None:
    net = Net(message(googlenet(batch=1).text), phase=TRAIN)
    assert sorted(net.loss_weights.values()) == pytest.approx([0.3, 0.3, 1.0])


def test_the_order_of_images_in_memory_changes_no_gradient() -> None:
    """Convolutions in float32 lay channels side by side, in float64 they do not."""
    text = message(lenet(batch=4).text)
    single, double = Net(text, dtype=torch.float32), Net(text, dtype=torch.float64)
    double.forward(0, 0)
    for name in ("data", "label"):
        single.blobs[name].data.copy_(double.blobs[name].data)
    for mine, given in zip(single.learnable, double.learnable, strict=True):
        mine.data.detach().copy_(given.data)
    for net in (single, double):
        net.forward(1)
        net.backward()
    for mine, given in zip(single.learnable, double.learnable, strict=True):
        assert mine.diff is not None
        assert same_order(mine.diff, mine.data)
        assert mine.diff_in_order().is_contiguous()
        torch.testing.assert_close(mine.diff.double(), given.diff, rtol=1e-4, atol=1e-6)
