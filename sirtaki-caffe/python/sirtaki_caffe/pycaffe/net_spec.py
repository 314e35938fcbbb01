"""Nets written in Python: `n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20)`.

A layer type called as a function of `layers` returns its tops; layers that the tops of a net do not
need are not part of it. A parameter goes to the message of the layer's own type if that has such a
field, otherwise to the layer's.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from sirtaki_caffe.proto.grammar.parser import is_repeated
from sirtaki_caffe.proto.schema import LayerParameter, NetParameter, message_class


class Top:
    """A top of a layer.

    Args:
        fn: The layer.
        n: Its index among the layer's tops.
    """

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> Any:
        """Return the NetParameter of this blob and its ancestors, with generated names."""
        return to_proto(self)


class Function:
    """A layer: its type, its bottoms, its parameters.

    Args:
        type_name: Its type, for example `Convolution`.
        inputs: Its bottoms.
        params: Its parameters; `ntop` and `in_place` among them are not the layer's own.

    Raises:
        TypeError: A bottom is no blob of a layer.
    """

    def __init__(self, type_name: str, inputs: Sequence[Any], params: Mapping[str, Any]) -> None:
        for index, each in enumerate(inputs):
            if not isinstance(each, Top):
                raise TypeError(
                    f"{type_name} input {index} is not a Top (type is {type(each)}){_hint(each)}"
                )
        self.type_name = type_name
        self.inputs = tuple(inputs)
        self.params = dict(params)
        self.ntop = int(self.params.pop("ntop", 1))
        self.in_place = bool(self.params.pop("in_place", False))
        self.tops = tuple(Top(self, n) for n in range(self.ntop))


def _hint(given: Any) -> str:
    """Return advice on an object that is no top."""
    if isinstance(given, tuple):
        return "; the layer has several tops: name one, as in layer[0]"
    if isinstance(given, Function):
        return "; the layer has ntop=0, so there is nothing to read"
    if isinstance(given, str):
        return f"; give the blob itself, as in n.{given}, or n['{given}']"
    return "; give a blob that a layer of L made"


class NetSpec:
    """The named blobs of a net, which consists of the assigned ones and their ancestors."""

    tops: OrderedDict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", OrderedDict())

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self.tops[name]
        except KeyError:
            raise AttributeError(f"the net has no blob '{name}'") from None

    def __delattr__(self, name: str) -> None:
        del self.tops[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def to_proto(self) -> Any:
        """Return the NetParameter; each blob and its layer have the assigned name."""
        return _built(self.tops.values(), {top: name for name, top in self.tops.items()})


class Layers:
    """Layer types as functions: `layers.ReLU(bottom, in_place=True)`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def layer(*inputs: Any, **params: Any) -> Any:
            """Return the layer's top, its tops if it has many, or itself if it has none."""
            function = Function(name, inputs, params)
            if function.ntop == 0:
                return function
            return function.tops[0] if function.ntop == 1 else function.tops

        return layer


class Parameters:
    """The values of the schema's enums: `params.Pooling.MAX`, `params.Data.LMDB`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return message_class(f"{name}Parameter")
        except KeyError:
            raise AttributeError(f"Caffe has no message {name}Parameter") from None


def to_proto(*tops: Any) -> Any:
    """Return the NetParameter of blobs and their ancestors; names are made up: `Convolution1`."""
    return _built(tops, {})


def _built(tops: Any, names: dict[Any, str]) -> Any:
    layers: dict[Function, Any] = {}
    counts: Counter[str] = Counter()
    for top in tops:
        _add(top.fn if isinstance(top, Top) else top, layers, names, counts)
    net = NetParameter()
    net.layer.extend(layers.values())
    return net


def _add(
    function: Function, layers: dict[Function, Any], names: dict[Any, str], counts: Counter[str]
) -> None:
    """Add a layer after those that it needs; without recursion, as nets may be long."""
    waiting = [function]
    while waiting:
        each = waiting[-1]
        missing = [top.fn for top in each.inputs if top.fn not in layers]
        if each in layers or not missing:
            waiting.pop()
            if each not in layers:
                layers[each] = _layer(each, layers, names, counts)
        else:
            waiting.append(missing[0])


def _layer(
    function: Function, layers: dict[Function, Any], names: dict[Any, str], counts: Counter[str]
) -> Any:
    layer = LayerParameter(type=function.type_name)
    layer.bottom.extend(layers[top.fn].top[top.n] for top in function.inputs)
    if function.in_place:
        layer.top.extend(layer.bottom)
    else:
        layer.top.extend(_name(top, function, names, counts) for top in function.tops)
    layer.name = _name(function.tops[0] if function.tops else function, function, names, counts)
    own = _own_param(function.type_name)
    for key, value in function.params.items():
        if own and not key.endswith("param") and _has(getattr(layer, own), key):
            _assign(getattr(layer, own), key, value)
        else:
            _assign(layer, key, value)
    return layer


def _name(what: Any, function: Function, names: dict[Any, str], counts: Counter[str]) -> str:
    if what not in names:
        counts[function.type_name] += 1
        names[what] = f"{function.type_name}{counts[function.type_name]}"
    return names[what]


_OWN_PARAMS = {
    field.message_type.name: field.name
    for field in LayerParameter.DESCRIPTOR.fields
    if field.message_type is not None and field.name.endswith("_param")
}


def _own_param(type_name: str) -> str | None:
    return _OWN_PARAMS.get(f"{type_name}Parameter")


def _has(message: Any, name: str) -> bool:
    return name in message.DESCRIPTOR.fields_by_name


def _assign(message: Any, name: str, value: Any) -> None:
    """Set a field from numbers, strings, and dicts and lists of them.

    Raises:
        AttributeError: The message has no such field.
        TypeError: The value is not one of the field.
    """
    if not _has(message, name):
        raise AttributeError(f"{message.DESCRIPTOR.name} has no field '{name}'")
    field = message.DESCRIPTOR.fields_by_name[name]
    if is_repeated(field):
        target = getattr(message, name)
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(each, Mapping):
                _fill(target.add(), each)
            elif field.message_type is not None:
                target.add().CopyFrom(each)
            else:
                target.append(each)
    elif isinstance(value, Mapping):
        getattr(message, name).SetInParent()
        _fill(getattr(message, name), value)
    elif field.message_type is not None:
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        _assign(message, name, value)


layers = Layers()
params = Parameters()
