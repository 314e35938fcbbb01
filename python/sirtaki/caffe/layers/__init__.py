"""Layer types, by family; importing this registers all of them."""

import sirtaki.caffe.data.layers
from sirtaki.caffe.layers import (
    activations,
    detection,
    dropout,
    losses,
    normalization,
    pooling,
    products,
    python_layer,
    recurrent,
    refused,
    shapes,
)

__all__ = [
    "activations",
    "detection",
    "dropout",
    "losses",
    "normalization",
    "pooling",
    "products",
    "python_layer",
    "recurrent",
    "refused",
    "shapes",
]
