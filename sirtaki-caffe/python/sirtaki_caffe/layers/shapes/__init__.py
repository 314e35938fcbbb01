"""Layers that move elements and leave or fold their values."""

from sirtaki_caffe.layers.shapes import folding, items, joining, reshaping, routing

__all__ = ["folding", "items", "joining", "reshaping", "routing"]
