"""Layers that move elements, unchanged or reduced."""

from sirtaki_caffe.layers.shapes import folding, items, joining, reshaping, routing

__all__ = ["folding", "items", "joining", "reshaping", "routing"]
