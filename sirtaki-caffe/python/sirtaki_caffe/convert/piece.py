"""The PyTorch code of a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from sirtaki_caffe.layers.base import Layer, Param, Shape


@dataclass
class Piece:
    """A layer as PyTorch code.

    Args:
        call: The expression of its tops, a tuple if there are several.
        module: The expression of the module that `call` uses, or None.
        params: Names of the module's tensors, and their params.
        tensors: Tensors of the module, by name, that are computed from several params.
    """

    call: str
    module: str | None = None
    params: dict[str, Param] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A layer and its inputs.

    Args:
        layer: The layer.
        names: The variables of its bottoms.
        shapes: The shapes of its bottoms.
        tops: The shapes of its tops.
        own: The name of its module in the code, such as `self.conv1`.
    """

    layer: Layer
    names: Sequence[str]
    shapes: Sequence[Shape]
    tops: Sequence[Shape]
    own: str

    @property
    def x(self) -> str:
        """The variable of its first bottom."""
        return self.names[0]

    @property
    def rank(self) -> int:
        """The number of axes of its first bottom."""
        return len(self.shapes[0])

    def axis(self, value: int) -> int:
        """Return the index of an axis of its first bottom, counted from the front."""
        return value + self.rank if value < 0 else value


Emitter = Callable[[Place], Piece]

_emitters: dict[str, Emitter] = {}


def emits(*kinds: str) -> Callable[[Emitter], Emitter]:
    """Register a function as the writer of layers of some types; a decorator."""

    def register(emitter: Emitter) -> Emitter:
        for kind in kinds:
            _emitters[kind] = emitter
        return emitter

    return register


def emitter_of(kind: str) -> Emitter | None:
    """Return the writer of layers of a type, or None."""
    return _emitters.get(kind)


def number(value: float) -> str:
    """Return a number as code, with the digits needed for float32."""
    if not math.isfinite(value):
        return f'float("{value}")'
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{float(f'{value:.7g}')!r}"


def sizes(values: Sequence[int]) -> str:
    """Return sizes as code: one number if they are equal."""
    if len(set(values)) == 1:
        return str(values[0])
    return f"({', '.join(str(value) for value in values)})"


def call(name: str, *arguments: str, **named: str | None) -> str:
    """Return a call as code, without arguments that are None."""
    given = [f"{key}={value}" for key, value in named.items() if value is not None]
    return f"{name}({', '.join([*arguments, *given])})"
