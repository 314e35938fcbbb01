"""The message classes of Caffe's files, from caffe.proto.

They are in a pool of their own, because another module of the process may have registered messages
with the same names.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(resources.files(__package__).joinpath("caffe.desc").read_bytes())


_types = _pool.FindFileByName("caffe.proto").message_types_by_name
# All at once: protobuf 4.22 to 4.24 crash on classes created at a field's first use.
_classes = {name: message_factory.GetMessageClass(type_) for name, type_ in _types.items()}


def message_class(name: str) -> Any:
    """Return the class of a message, for example `NetParameter`; KeyError if there is none."""
    return _classes[name]


def message_names() -> list[str]:
    """Return the names of all messages of the file."""
    return sorted(_classes)


def module_names() -> dict[str, Any]:
    """Return the names that protoc would define in `caffe_pb2`: messages, enums, their values."""
    file = _pool.FindFileByName("caffe.proto")
    names: dict[str, Any] = dict(_classes)
    for name, enum in file.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names |= {value.name: value.number for value in enum.values}
    return names | {"DESCRIPTOR": file}


BlobProto = message_class("BlobProto")
BlobProtoVector = message_class("BlobProtoVector")
Datum = message_class("Datum")
LayerParameter = message_class("LayerParameter")
MultiPhaseSolverParameter = message_class("MultiPhaseSolverParameter")
NetParameter = message_class("NetParameter")
NetState = message_class("NetState")
SolverParameter = message_class("SolverParameter")
SolverState = message_class("SolverState")
TransformationParameter = message_class("TransformationParameter")

TRAIN = 0
TEST = 1

__all__ = [
    "TEST",
    "TRAIN",
    "BlobProto",
    "BlobProtoVector",
    "Datum",
    "LayerParameter",
    "Message",
    "MultiPhaseSolverParameter",
    "NetParameter",
    "NetState",
    "SolverParameter",
    "SolverState",
    "TransformationParameter",
    "message_class",
    "message_names",
    "module_names",
]
