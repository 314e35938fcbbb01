"""What a layer becomes in PyTorch's code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from sirtaki_caffe.layers.base import Layer, Param, Shape


@dataclass
class Piece:
    """A layer in PyTorch's code.

    Args:
        call: The expression that makes its tops; several are a tuple.
        module: What makes the module that `call` uses; None: it needs none.
        params: Names of the module's tensors, and the layer's params that they are.
        tensors: Names of the module's tensors that are worked out from several params.
    """

    call: str
    module: str | None = None
    params: dict[str, Param] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A layer, and what it is called with.

    Args:
        layer: The layer.
        names: The variables of its bottoms.
        shapes: The shapes of its bottoms.
        tops: The shapes of its tops.
        own: Its module in the code, `self.conv1`.
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
        """An axis of its first bottom, counted from the first."""
        return value + self.rank if value < 0 else value


Emitter = Callable[[Place], Piece]

_emitters: dict[str, Emitter] = {}


def emits(*kinds: str) -> Callable[[Emitter], Emitter]:
    """Register a function as the one that writes layers of some types; a decorator."""

    def register(emitter: Emitter) -> Emitter:
        for kind in kinds:
            _emitters[kind] = emitter
        return emitter

    return register


def emitter_of(kind: str) -> Emitter | None:
    """What writes layers of a type; None: nothing does."""
    return _emitters.get(kind)


def number(value: float) -> str:
    """A number as code, no longer than needed for float32."""
    if not math.isfinite(value):
        return f'float("{value}")'
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{float(f'{value:.7g}')!r}"


def sizes(values: Sequence[int]) -> str:
    """Sizes as code: one number if they are equal."""
    if len(set(values)) == 1:
        return str(values[0])
    return f"({', '.join(str(value) for value in values)})"


def call(name: str, *arguments: str, **named: str | None) -> str:
    """A call as code; what is None is left out."""
    given = [f"{key}={value}" for key, value in named.items() if value is not None]
    return f"{name}({', '.join([*arguments, *given])})"
