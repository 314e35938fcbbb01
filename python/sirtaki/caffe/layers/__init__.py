"""Layer types, by family; importing this registers all of them."""

from sirtaki.caffe.data import layers as data
from sirtaki.caffe.layers import (
    activations,
    convolution,
    dropout,
    inner_product,
    losses,
    normalization,
    pooling,
    python_layer,
    shapes,
)

__all__ = [
    "activations",
    "convolution",
    "data",
    "dropout",
    "inner_product",
    "losses",
    "normalization",
    "pooling",
    "python_layer",
    "shapes",
]
