"""The classes of Caffe's messages: `caffe_pb2.NetParameter()`, `caffe_pb2.TRAIN`."""

from typing import Any

from sirtaki_caffe.proto.schema import module_names

globals().update(module_names())


def __getattr__(name: str) -> Any:
    raise AttributeError(f"Caffe's schema has no '{name}'")
