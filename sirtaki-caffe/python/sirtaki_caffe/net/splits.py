"""Splits: a blob with several readers is passed to each under its own name."""

from __future__ import annotations

from typing import Any

from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.proto.schema import NetParameter

Top = tuple[int, int]  # a layer's index in the net, and a top's in the layer


def split_layer_name(layer: str, blob: str, top: int) -> str:
    """Return the name of the layer that splits a top."""
    return f"{blob}_{layer}_{top}_split"


def split_blob_name(layer: str, blob: str, top: int, part: int) -> str:
    """Return the name of one of the blobs that a top is split into."""
    return f"{split_layer_name(layer, blob, top)}_{part}"


def insert_splits(net: Any) -> Any:
    """Return the net with a Split layer after each top that is used more than once.

    A loss weight counts as a use: the first part has it.

    Args:
        net: A NetParameter, filtered.

    Raises:
        LayerError: No earlier layer makes a bottom.
    """
    uses = _Uses(net)
    result = NetParameter()
    result.CopyFrom(net)
    del result.layer[:]
    given: dict[Top, int] = {}
    for index, layer in enumerate(net.layer):
        new = result.layer.add()
        new.CopyFrom(layer)
        for place, blob in enumerate(layer.bottom):
            top = uses.source[index, place]
            if uses.count[top] > 1:
                part = given[top]
                given[top] += 1
                new.bottom[place] = split_blob_name(net.layer[top[0]].name, blob, top[1], part)
        for place, blob in enumerate(layer.top):
            top = (index, place)
            if uses.count.get(top, 0) < 2:
                continue
            weight = uses.weight.get(top, 0.0)
            given[top] = 1 if weight else 0
            if weight:
                new.loss_weight[place] = 0
            _add_split(result, layer.name, blob, place, uses.count[top], weight)
    return result


class _Uses:
    """The readers of a net's tops."""

    def __init__(self, net: Any) -> None:
        self.source: dict[tuple[int, int], Top] = {}
        self.count: dict[Top, int] = {}
        self.weight: dict[Top, float] = {}
        last: dict[str, Top] = {}
        for index, layer in enumerate(net.layer):
            for place, blob in enumerate(layer.bottom):
                if blob not in last:
                    raise _unknown_bottom(net, index, place)
                top = last[blob]
                self.source[index, place] = top
                self.count[top] = self.count.get(top, 0) + 1
            for place, blob in enumerate(layer.top):
                last[blob] = (index, place)
            for place, weight in enumerate(layer.loss_weight[: len(layer.top)]):
                if weight:
                    top = (index, place)
                    self.weight[top] = weight
                    self.count[top] = self.count.get(top, 0) + 1


def _unknown_bottom(net: Any, index: int, place: int) -> LayerError:
    layer = net.layer[index]
    blob = layer.bottom[place]
    text = f"unknown bottom blob '{blob}' (bottom index {place})"
    later = [other.name for other in net.layer[index:] if blob in other.top]
    if later:
        text += f"; only '{later[0]}' makes it, which does not come before"
    return LayerError(layer.name, layer.type, text)


def _add_split(net: Any, layer: str, blob: str, top: int, parts: int, weight: float) -> None:
    split = net.layer.add(name=split_layer_name(layer, blob, top), type="Split")
    split.bottom.append(blob)
    split.top.extend(split_blob_name(layer, blob, top, part) for part in range(parts))
    if weight:
        split.loss_weight.extend([weight] + [0.0] * (parts - 1))
