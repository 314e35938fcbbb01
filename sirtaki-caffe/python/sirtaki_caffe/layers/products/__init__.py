"""Layers that multiply by learnt weights."""

from sirtaki_caffe.layers.products import convolution, inner_product

__all__ = ["convolution", "inner_product"]
