"""A net of each family of Caffe's builds as its paper says, and trains a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import caffe
from caffe_tests import zoo
from caffe_tests.families.regions import faster_rcnn, rfcn
from caffe_tests.families.segments import fcn8s, lrcn, unet
from caffe_tests.zoo_detectors import ssd300
from caffe_tests.zoo_writer import Writer
from sirtaki_caffe.net.net import Net

BOXES = [[20, 30, 90, 100, 3], [60, 10, 140, 120, 7]]
SIDE = 160  # of the images of regions

#: Small images, and narrow layers where the images cannot be small; the nets are the papers'.
FAMILIES: dict[str, Callable[[], Writer]] = {
    "LeNet": lambda: zoo.lenet(batch=2),
    "CIFAR quick": lambda: zoo.cifar10_quick(batch=2),
    "CIFAR full": lambda: zoo.cifar10_full(batch=2),
    "AlexNet": lambda: zoo.alexnet(batch=2, size=99),
    "CaffeNet": lambda: zoo.caffenet(batch=2, size=99),
    "GoogLeNet": lambda: zoo.googlenet(batch=1),
    "VGG-16": lambda: zoo.vgg16(batch=1, size=32),
    "ResNet-18": lambda: zoo.resnet18(batch=2),
    "SqueezeNet": lambda: zoo.squeezenet(batch=1, size=99),
    "MobileNet": lambda: zoo.mobilenet(batch=2, size=64),
    "Siamese": lambda: zoo.siamese(batch=2),
    "Autoencoder": lambda: zoo.autoencoder(batch=2),
    "FCN-8s": lambda: fcn8s(width=16, size=64),
    "U-Net": lambda: unet(width=16, size=188),
    "LRCN": lambda: lrcn(steps=3, films=2, size=63, units=32),
    "Faster R-CNN": lambda: faster_rcnn(width=8, size=SIDE),
    "R-FCN": lambda: rfcn(width=8, size=SIDE),
    "SSD300": lambda: ssd300(width=16),
}
#: What other blobs hold than images (normal numbers) and labels (whole numbers below 2).
GIVEN = {
    "cont": [[0, 0], [1, 1], [1, 1]],
    "im_info": [[SIDE, SIDE, 1]],
    "gt_boxes": BOXES,
}
#: Rows of SSD's labels: image, class, instance, corners, difficult; small and large boxes.
ROWS = [
    [0, 3, 0, 0.1, 0.2, 0.4, 0.6, 0],
    [0, 7, 1, 0.5, 0.4, 0.9, 0.9, 0],
    [0, 9, 0, 0.6, 0.1, 0.73, 0.23, 0],
    [0, 2, 0, 0.15, 0.15, 0.85, 0.85, 0],
    [0, 5, 0, 0.02, 0.05, 0.98, 0.95, 0],
]
#: Biases of twins behind which nothing bends: they drop out of the distance.
WITHOUT_GRADIENT = {"Siamese": ["ip2.1", "feat.1"]}


def feed(net: Net) -> None:
    """Put data into the blobs of Input layers."""
    random = np.random.default_rng(5)
    for step in net.steps:
        if not step.is_input:
            continue
        (blob,) = step.tops
        values = random.standard_normal(blob.shape)
        if blob.name in GIVEN:
            values = np.array(GIVEN[blob.name])
        elif blob.name == "label" and blob.shape[-1:] == (8,):
            values = np.array(ROWS)[None, None]
            blob.reshape(values.shape)
        elif blob.name == "label":
            values = random.integers(0, 2, blob.shape)
        blob.data.copy_(torch.from_numpy(values))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_net_of_the_family_trains_a_step(name: str, tmp_path: Path) -> None:
    written = FAMILIES[name]()
    (tmp_path / "net").write_text(written.text)
    (tmp_path / "solver").write_text(
        f'net: "{tmp_path}/net" base_lr: 1e-4 momentum: 0.9 lr_policy: "fixed" random_seed: 4 '
        f'snapshot_prefix: "{tmp_path}/s" snapshot_after_train: false'
    )
    solver = caffe.SGDSolver(str(tmp_path / "solver"))
    net = solver.net.engine
    feed(net)
    learning = [
        (param_name, param, param.data.detach().clone())
        for param_name, param in zip(net.learnable_names, net.learnable, strict=True)
        if param.learns
    ]
    assert sum(before.numel() for _, _, before in learning) == written.parameters
    solver.step(1)
    assert np.isfinite([solver.net.blobs[b].data.sum() for b in net.loss_weights]).all()
    still = [param_name for param_name, param, _ in learning if not param.diff.any()]
    assert still == WITHOUT_GRADIENT.get(name, [])
    for _, param, before in learning:
        assert torch.isfinite(param.data).all()
        assert torch.equal(param.data, before - param.diff)
    solver.engine.close()
