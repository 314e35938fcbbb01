"""Nets from texts, and what tests want to know of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import parse
from sirtaki_caffe.proto.upgrade import upgrade_net


def message(text: str) -> Any:
    """A NetParameter, upgraded."""
    return upgrade_net(parse(text, NetParameter, "test.prototxt"))


def build(text: str, **options: Any) -> Net:
    """A net in float64, the same each time."""
    options.setdefault("seed", 1701)
    options.setdefault("dtype", torch.float64)
    return Net(message(text), **options)


def inputs(*names_and_shapes: Any) -> str:
    """An Input layer: inputs("data", (2, 3), "label", (2,))."""
    names, shapes = names_and_shapes[::2], names_and_shapes[1::2]
    tops = " ".join(f'top: "{name}"' for name in names)
    dims = " ".join(
        "shape { " + " ".join(f"dim: {size}" for size in shape) + " }" for shape in shapes
    )
    return f'layer {{ name: "input" type: "Input" {tops} input_param {{ {dims} }} }}\n'


def product(name: str, bottom: str, outputs: int, *, top: str = "", more: str = "") -> str:
    """An InnerProduct layer with Gaussian weights and biases."""
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top or name}" '
        f'{more} inner_product_param {{ num_output: {outputs} weight_filler {{ type: "gaussian" }} '
        f'bias_filler {{ type: "gaussian" }} }} }}\n'
    )


def loss(prediction: str, target: str, *, name: str = "loss", more: str = "") -> str:
    """A EuclideanLoss layer."""
    return (
        f'layer {{ name: "{name}" type: "EuclideanLoss" bottom: "{prediction}" '
        f'bottom: "{target}" top: "{name}" {more} }}\n'
    )


def fill(net: Net, seed: int = 3) -> None:
    """Normal random numbers in all inputs."""
    random = np.random.default_rng(seed)
    for step in net.steps:
        if step.is_input:
            for top in step.tops:
                top.data.copy_(torch.from_numpy(random.standard_normal(top.shape)))
