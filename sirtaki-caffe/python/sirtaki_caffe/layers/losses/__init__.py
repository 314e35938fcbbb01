"""Losses, and the measures beside them."""

from sirtaki_caffe.layers.losses import accuracy, labelled, regression, softmax

__all__ = ["accuracy", "labelled", "regression", "softmax"]
