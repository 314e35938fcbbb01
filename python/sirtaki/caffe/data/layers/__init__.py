"""The layers that bring data into a net."""

from sirtaki.caffe.data.layers import database, made

__all__ = ["database", "made"]
