"""Layer types, by family; importing this registers all of them."""

from sirtaki_caffe.data import layers as data_layers
from sirtaki_caffe.layers import (
    activations,
    detection,
    losses,
    normalization,
    pooling,
    products,
    python_layer,
    recurrent,
    refused,
    shapes,
    ssd,
)

__all__ = [
    "activations",
    "data_layers",
    "detection",
    "losses",
    "normalization",
    "pooling",
    "products",
    "python_layer",
    "recurrent",
    "refused",
    "shapes",
    "ssd",
]
