"""Construction of a net's layers, blobs and params from its message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sirtaki_caffe.layers as _families
from sirtaki_caffe.errors import CaffeError, LayerError, suggestion
from sirtaki_caffe.layers.base import Context, Layer, Shape, Share, layer_class, layer_kinds
from sirtaki_caffe.net.blob import Blob
from sirtaki_caffe.net.gradients import settle_gradients
from sirtaki_caffe.net.sharing import Sharing
from sirtaki_caffe.net.step import Step
from sirtaki_caffe.proto.schema import TRAIN
from sirtaki_caffe.proto.text import text_of

del _families  # imported to register the layer types
AUTOMATIC = "(automatic)"

Log = Callable[[str, str], None]

_MOST_NUMBERS = 2**31 - 1  # as in Caffe


def describe(shape: Sequence[int]) -> str:
    """Return a shape in Caffe's format: `64 1 28 28 (50176)`."""
    return " ".join([*(str(size) for size in shape), f"({math.prod(shape)})"])


class Builder:
    """Builds the layers of a net in order.

    Args:
        net: A NetParameter, filtered and with splits; loss weights and multipliers derived from
            layer types are written to it.
        context: Its layers' information about it.
        force: Whether gradients go to all bottoms, `force_backward` of the net.
        log: Called with the log lines of building.

    Raises:
        CaffeError: The net cannot be built; the text names the layer.
    """

    def __init__(self, net: Any, context: Context, force: bool, log: Log | None) -> None:
        self.net = net
        self.steps: list[Step] = []
        self.blobs: dict[str, Blob] = {}
        self.unread: dict[str, None] = {}
        self._shares: dict[str, Share] = {}  # of blobs
        self._context = context
        self._log = log
        self._sharing = Sharing(log)
        self._bytes = 0
        for message in net.layer:
            self._add(message)
        settle_gradients(self.steps, force=force)
        self._say_the_rest()

    def _say(self, text: str) -> None:
        if self._log:
            self._log("net.cpp", text)

    def _add(self, message: Any) -> None:
        if self._log:
            self._log("layer_factory.hpp", f"Creating layer {message.name}")
        self._say(f"Creating Layer {message.name}")
        layer = _make(message, self._context)
        bottoms = [self._bottom(layer, place) for place in range(len(message.bottom))]
        tops = [self._top(layer, place) for place in range(len(message.top))]
        if layer.is_loss and not tops:
            self._say(f"{message.name} -> {AUTOMATIC}")
            tops = [Blob(AUTOMATIC, (), self._context.dtype)]
        _check_counts(layer, bottoms, tops)
        self._say(f"Setting up {message.name}")
        shapes = self._set_up(layer, [bottom.shape for bottom in bottoms])
        weights = _loss_weights(layer, len(tops))
        self._settle_tops(layer, tops, shapes, weights)
        averaged = self._average(layer)
        seeds = self._seeds(layer, shapes, weights)
        self.steps.append(Step(layer, bottoms, tops, weights, seeds, averaged))

    def _average(self, layer: Layer) -> list[bool]:
        """Return the bottoms for which the layer needs means over the processes; set its shares."""
        shares = [self._shares[name] for name in layer.proto.bottom]
        stays = layer.keeps_means and max(shares, default=Share.SAME) <= Share.MEAN
        alone = self._context.world.size == 1 or self._context.phase != TRAIN
        averaged = [share == Share.MEAN and not (stays or alone) for share in shares]
        layer.shares = [
            Share.SAME if mean else share for share, mean in zip(shares, averaged, strict=True)
        ]
        return averaged

    def _seeds(self, layer: Layer, shapes: list[Shape], weights: list[float]) -> list[float]:
        """Return loss weights; those of items are for sums over the processes."""
        shares = layer.top_shares(shapes)
        self._shares |= dict(zip(layer.proto.top, shares, strict=False))  # may be unnamed in a loss
        processes = self._context.world.size if self._context.phase == TRAIN else 1
        return [
            weight * processes if share >= Share.ITEMS else weight
            for weight, share in zip(weights, shares, strict=True)
        ]

    def _set_up(self, layer: Layer, bottoms: list[Shape]) -> list[Shape]:
        """Create the layer's params; return the shapes of its tops."""
        try:
            layer.setup(bottoms)
            self._sharing.apply(layer)
            return layer.shapes(bottoms)
        except CaffeError:
            raise
        except Exception as error:  # errors that a layer does not handle, such as too little memory
            raise layer.error(f"cannot be built: {error}") from error

    def _bottom(self, layer: Layer, place: int) -> Blob:
        name = layer.proto.bottom[place]
        self._say(f"{layer.name} <- {name}")
        self.unread.pop(name, None)
        return self.blobs[name]

    def _top(self, layer: Layer, place: int) -> Blob:
        message = layer.proto
        name = message.top[place]
        in_place = place < len(message.bottom) and message.bottom[place] == name
        self._say(f"{layer.name} -> {name}{' (in-place)' if in_place else ''}")
        self.unread[name] = None
        if in_place:
            return self.blobs[name]
        if name in self.blobs:
            raise layer.error(f"top blob '{name}' is produced by multiple sources")
        blob = self.blobs[name] = Blob(name, (), self._context.dtype)
        return blob

    def _settle_tops(
        self, layer: Layer, tops: list[Blob], shapes: list[Shape], weights: list[float]
    ) -> None:
        if len(shapes) != len(tops):
            raise layer.error(f"makes {len(shapes)} tops; its message names {len(tops)}")
        for top, shape, weight in zip(tops, shapes, weights, strict=True):
            if top.name in layer.proto.bottom and top.shape != shape:
                raise layer.error(
                    f"makes its bottom '{top.name}' of shape {list(top.shape)} one of "
                    f"{list(shape)}; give the top a name of its own"
                )
            if math.prod(shape) > _MOST_NUMBERS:
                raise layer.error(
                    f"makes '{top.name}' of shape {list(shape)}; a blob has at most "
                    f"{_MOST_NUMBERS} numbers"
                )
            top.reshape(shape)
            self._say(f"Top shape: {describe(shape)}")
            if weight:
                self._say(f"    with loss weight {weight:g}")
            self._bytes += math.prod(shape) * self._context.dtype.itemsize
        self._say(f"Memory required for data: {self._bytes}")

    def _say_the_rest(self) -> None:
        if not self._log:
            return
        for step in reversed(self.steps):
            needs = "needs" if step.needs_backward else "does not need"
            self._say(f"{step.layer.name} {needs} backward computation.")
        for name in self.outputs():
            self._say(f"This network produces output {name}")
        self._say("Network initialization done.")

    def outputs(self) -> list[str]:
        """Return the blobs that no layer reads, sorted by the bytes of their names."""
        return sorted(self.unread, key=lambda name: name.encode())


def log_net(net: Any, log: Log | None) -> None:
    """Log the layers that are built."""
    if log:
        log("net.cpp", f"Initializing net from parameters: \n{text_of(net)}")


def _make(message: Any, context: Context) -> Layer:
    cls = layer_class(message.type)
    if cls is None:
        near = suggestion(message.type, layer_kinds())
        raise LayerError(message.name, message.type, f"this type of layer is not known{near}")
    return cls(message, context)


def _check_counts(layer: Layer, bottoms: list[Blob], tops: list[Blob]) -> None:
    for what, blobs, (least, most) in (
        ("bottom", bottoms, layer.bottoms),
        ("top", tops, layer.tops),
    ):
        if len(blobs) < least or (most is not None and len(blobs) > most):
            if least == most:
                expected = f"{least}"
            else:
                expected = f"at least {least}" if most is None else f"{least} to {most}"
            raise layer.error(f"takes {expected} {what} blobs, {len(blobs)} are given")


def _loss_weights(layer: Layer, tops: int) -> list[float]:
    message = layer.proto
    if not message.loss_weight and layer.is_loss and tops:
        message.loss_weight.extend([1.0] + [0.0] * (tops - 1))
    if message.loss_weight and len(message.loss_weight) != tops:
        raise layer.error(
            f"loss_weight is given {len(message.loss_weight)} times for {tops} tops; "
            f"give it once a top or not at all"
        )
    return list(message.loss_weight) or [0.0] * tops
