"""The `param` fields of a layer's message: multipliers, and params shared by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sirtaki_caffe.layers.base import Layer, Param

PERMISSIVE = 1  # of ParamSpec.share_mode

Log = Callable[[str, str], None]


class SharedParam(Param):
    """Another layer's param in another shape, which `share_mode: PERMISSIVE` allows.

    Args:
        owner: The param that owns the values and the gradient.
        shape: The shape in this layer.
    """

    def __init__(self, owner: Param, shape: tuple[int, ...]) -> None:
        super().__init__(owner.in_order().view(shape))
        self._owner = owner

    @property
    def owner(self) -> Param:
        """Return the owner of the values and the gradient."""
        return self._owner

    @property
    def learns(self) -> bool:
        """Return whether the solver changes it."""
        return self._owner.learns

    def add_diff(self, gradient: torch.Tensor, *, ours: bool = False) -> None:
        """Add to the owner's gradient."""
        self._owner.add_diff(gradient.reshape(self._owner.data.shape), ours=ours)


@dataclass
class _Owner:
    """The first layer with a param of a given name."""

    layer: Layer
    index: int
    param: Param
    given: dict[str, float]  # the multipliers in a message


class Sharing:
    """The named params of a net.

    Args:
        log: Called with log lines about sharing.
    """

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self._owners: dict[str, _Owner] = {}

    def apply(self, layer: Layer) -> None:
        """Set the multipliers of a layer's params, and share those with a known name.

        Multipliers that the layer itself sets, such as BatchNorm's zeros, are added to its message.

        Raises:
            LayerError: There are more `param` than blobs, or one does not fit its shared param.
        """
        specs = layer.proto.param
        if len(specs) > len(layer.params):
            raise layer.error(
                f"has {len(specs)} param for {len(layer.params)} blobs; leave out what is too many"
            )
        for index, param in enumerate(layer.params):
            if index >= len(specs):
                _write_spec(specs, index, param)
                continue
            spec = specs[index]
            given = {
                field: float(getattr(spec, field))
                for field in ("lr_mult", "decay_mult")
                if spec.HasField(field)
            }
            if spec.name and spec.name in self._owners:
                layer.params[index] = self._share(layer, index, spec, given)
                continue
            for field, value in given.items():
                setattr(param, field, value)
            if spec.name:
                self._owners[spec.name] = _Owner(layer, index, param, given)

    def _share(self, layer: Layer, index: int, spec: Any, given: dict[str, float]) -> Param:
        owner = self._owners[spec.name]
        if self._log:
            self._log(
                "net.cpp",
                f"Sharing parameters '{spec.name}' owned by layer '{owner.layer.name}', "
                f"param index {owner.index}",
            )
        for field, value in given.items():
            if owner.given.setdefault(field, value) != value:
                raise layer.error(
                    f"param '{spec.name}' has {field} {value:g}, layer '{owner.layer.name}', "
                    f"which shares it, {owner.given[field]:g}"
                )
            setattr(owner.param, field, value)
        ours, theirs = tuple(layer.params[index].data.shape), tuple(owner.param.data.shape)
        if ours == theirs:
            return owner.param
        permissive = spec.share_mode == PERMISSIVE
        if permissive and math.prod(ours) == math.prod(theirs):
            return SharedParam(owner.param, ours)
        hint = "" if permissive else "; share_mode: PERMISSIVE shares what has equally many values"
        raise layer.error(
            f"param '{spec.name}' has shape {list(ours)}, layer '{owner.layer.name}', which owns "
            f"it, {list(theirs)}{hint}"
        )


def _write_spec(specs: Any, index: int, param: Param) -> None:
    if (param.lr_mult, param.decay_mult) == (1.0, 1.0):
        return
    while len(specs) <= index:
        specs.add()
    if param.lr_mult != 1.0:
        specs[index].lr_mult = param.lr_mult
    if param.decay_mult != 1.0:
        specs[index].decay_mult = param.decay_mult
