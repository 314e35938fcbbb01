"""Nets of Caffe's written by hand in PyTorch, and OpenCV's importer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.weights import write_weights


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(inplace=True),
        nn.Linear(500, 10),
    )


def alexnet() -> nn.Module:
    def normalised(size: int) -> list[nn.Module]:
        return [nn.LocalResponseNorm(size, 1e-4, 0.75, 1.0), nn.MaxPool2d(3, 2)]

    def full(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs), nn.ReLU(inplace=True), nn.Dropout(0.5)]

    return nn.Sequential(
        *(nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(inplace=True), *normalised(5)),
        *(nn.Conv2d(96, 256, 5, padding=2, groups=2), nn.ReLU(inplace=True), *normalised(5)),
        *(nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 384, 3, padding=1, groups=2), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 256, 3, padding=1, groups=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        nn.Flatten(),
        *(*full(9216, 4096), *full(4096, 4096), nn.Linear(4096, 1000)),
    )


def hand_step(module: nn.Module, net: Net) -> Callable[[], None]:
    """A step of a module on a net's data and weights: forward, backward, no update."""
    data, label = (net.blobs[name].data for name in ("data", "label"))
    target = label.long()
    parameters = list(module.parameters())
    with torch.no_grad():
        for parameter, param in zip(parameters, net.learnable, strict=True):
            parameter.copy_(param.data)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        nn.functional.cross_entropy(module(data), target).backward()

    return step


def opencv_forward(text: str, net: Net, folder: Path) -> Callable[[], Sequence[float]]:
    """A forward by OpenCV of a deploy net with the weights of ours; its outputs, flat."""
    import cv2

    cv2.setNumThreads(1)
    model, weights = folder / "deploy.prototxt", folder / "deploy.caffemodel"
    model.write_text(text)
    write_weights(weights, net.proto, net.saved())
    imported = cv2.dnn.readNetFromCaffe(str(model), str(weights))
    data = net.blobs["data"].data.numpy()

    def forward() -> Sequence[float]:
        imported.setInput(data)
        return imported.forward().ravel()

    return forward


class _Block(nn.Module):
    """Two convolutions, and the way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.short = None if inputs == outputs else _normalised(inputs, outputs, 1, stride)
        self.long = nn.Sequential(
            _normalised(inputs, outputs, 3, stride),
            nn.ReLU(inplace=True),
            _normalised(outputs, outputs, 3, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        short = x if self.short is None else self.short(x)
        return nn.functional.relu(short + self.long(x), inplace=True)


def _normalised(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


def resnet18() -> nn.Module:
    blocks = []
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        blocks += [_Block(inputs, outputs, stride), _Block(outputs, outputs, 1)]
    return nn.Sequential(
        *(_normalised(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(*blocks, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(512, 1000)),
    )
