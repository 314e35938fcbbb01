"""Normalisation, and its scales and shifts."""

from sirtaki_caffe.layers.normalization import batch_norm, lrn, mean_variance, scale

__all__ = ["batch_norm", "lrn", "mean_variance", "scale"]
