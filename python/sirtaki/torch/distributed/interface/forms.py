"""The argument forms accepted by the operations of PyTorch's groups.

Each operation takes lists of tensors and an options object, as functions of `torch.distributed`
pass them, or single tensors and the options' values: `group.broadcast(tensor, 0)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

Method = TypeVar("Method", bound=Callable[..., Any])

# The values that replace options, and their names in options.
_FIELDS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}


class Argument(NamedTuple):
    """An argument before the options.

    names: PyTorch's names for it. lists: the number of nested lists around a tensor.
    """

    names: tuple[str, ...]
    lists: int = 0


TENSORS = Argument(("tensors", "tensor"), 1)
OUTPUT = Argument(("output", "outputTensor", "output_tensor"))
INPUT = Argument(("input", "inputTensor", "input_tensor"))
OUTPUTS = Argument(("output_tensors", "outputs", "output_tensor", "output"), 1)
INPUTS = Argument(("input_tensors", "inputs", "input_tensor", "input"), 1)
OUTPUT_LISTS = Argument(OUTPUTS.names, 2)
INPUT_LISTS = Argument(INPUTS.names, 2)
SPLITS = (Argument(("output_split_sizes",)), Argument(("input_split_sizes",)))


def takes(
    options: Callable[[], Any], arguments: Sequence[Argument], *fields: str
) -> Callable[[Method], Method]:
    """Make a method that takes lists and options accept every form.

    Args:
        options: Makes options with their defaults.
        arguments: The arguments before the options.
        *fields: The values that may replace options, in this order, before a timeout.
    """
    count = len(arguments)
    in_place = (*fields, "timeout")

    def decorate(method: Method) -> Method:
        name = method.__name__

        @functools.wraps(method)
        def call(self: Any, *given: Any, **named: Any) -> Any:
            values = list(given[:count])
            for argument in arguments[len(values) :]:
                found = next((each for each in argument.names if each in named), None)
                if found is None:
                    raise TypeError(f"{name}() needs {argument.names[0]}")
                values.append(named.pop(found))
            rest = given[count:]
            if "opts" in named:
                opts = named.pop("opts")
            elif rest and _is_options(rest[0]):
                opts, rest = rest[0], rest[1:]
            else:
                opts, rest, named = _options(name, options(), in_place, rest, named), (), {}
            if rest or named:
                raise TypeError(f"{name}() takes no {', '.join([*map(repr, rest), *named])}")
            listed = map(_listed, values, arguments)
            return method(self, *listed, options() if opts is None else opts)

        return call  # type: ignore[return-value]

    return decorate


def _is_options(value: object) -> bool:
    return type(value).__name__.endswith("Options")


def _options(
    name: str, opts: Any, fields: Sequence[str], given: Sequence[Any], named: dict[str, Any]
) -> Any:
    if len(given) > len(fields):
        raise TypeError(f"{name}() takes at most {len(fields)} arguments after its tensors")
    said = {**dict(zip(fields, given, strict=False)), **named}
    for field, value in said.items():
        if field not in fields:
            raise TypeError(f"{name}() takes no {field}")
        if value is not None:
            setattr(opts, _FIELDS[field], value)
    return opts


def _listed(value: Any, argument: Argument) -> Any:
    """Wrap a bare value in as many lists as the operation expects."""
    if argument.lists > 0 and isinstance(value, torch.Tensor):
        return _listed([value], argument)
    if argument.lists == 2 and value and isinstance(value[0], torch.Tensor):
        return [value]
    return value
