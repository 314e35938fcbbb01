"""Losses, and related measures."""

from sirtaki_caffe.layers.losses import accuracy, labelled, regression, softmax

__all__ = ["accuracy", "labelled", "regression", "softmax"]
