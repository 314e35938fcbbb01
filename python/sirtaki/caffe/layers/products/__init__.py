"""Layers that multiply by learnt weights."""

from sirtaki.caffe.layers.products import convolution, inner_product

__all__ = ["convolution", "inner_product"]
