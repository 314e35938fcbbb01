"""Layers of Caffe's first files: `layers { layer { type: "conv" … } }`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sirtaki_caffe.errors import CaffeError

#: Called with what an upgrade did, or could not keep.
Note = Callable[[str], None]


def ignore(line: str) -> None:
    """A `Note` that ignores its line."""
    del line


#: The types of version 0 and of version 1.
TYPES = {
    "conv": "CONVOLUTION",
    "images": "IMAGE_DATA",
    "innerproduct": "INNER_PRODUCT",
    "pool": "POOLING",
    **{
        each: each.upper()
        for each in (
            *("accuracy", "bnll", "concat", "data", "dropout", "euclidean_loss", "flatten"),
            *("hdf5_data", "hdf5_output", "im2col", "infogain_loss", "lrn"),
            *("multinomial_logistic_loss", "relu", "sigmoid", "softmax", "softmax_loss"),
            *("split", "tanh", "window_data"),
        )
    },
}

_CONV, _FULL, _POOL = "convolution_param", "inner_product_param", "pooling_param"
_DATA, _IMAGES, _WINDOW = "data_param", "image_data_param", "window_data_param"
_SCALED = {"data": _DATA, "images": _IMAGES, "window_data": _WINDOW}
_WEIGHTED = {"conv": _CONV, "innerproduct": _FULL}
_LRN = {"lrn": "lrn_param"}
_WINDOWED = {"window_data": _WINDOW}

#: The destination of a field: for each type that has it, the message and the field's name there.
_MOVES: dict[str, tuple[dict[str, str], str]] = {
    "num_output": (_WEIGHTED, "num_output"),
    "biasterm": (_WEIGHTED, "bias_term"),
    "weight_filler": (_WEIGHTED, "weight_filler"),
    "bias_filler": (_WEIGHTED, "bias_filler"),
    "pad": ({"conv": _CONV, "pool": _POOL}, "pad"),
    "kernelsize": ({"conv": _CONV, "pool": _POOL}, "kernel_size"),
    "group": ({"conv": _CONV}, "group"),
    "stride": ({"conv": _CONV, "pool": _POOL}, "stride"),
    "pool": ({"pool": _POOL}, "pool"),
    "dropout_ratio": ({"dropout": "dropout_param"}, "dropout_ratio"),
    "local_size": (_LRN, "local_size"),
    "alpha": (_LRN, "alpha"),
    "beta": (_LRN, "beta"),
    "k": (_LRN, "k"),
    "source": (
        {**_SCALED, "hdf5_data": "hdf5_data_param", "infogain_loss": "infogain_loss_param"},
        "source",
    ),
    "scale": (_SCALED, "scale"),
    "meanfile": (_SCALED, "mean_file"),
    "batchsize": ({**_SCALED, "hdf5_data": "hdf5_data_param"}, "batch_size"),
    "cropsize": (_SCALED, "crop_size"),
    "mirror": (_SCALED, "mirror"),
    "rand_skip": ({"data": _DATA, "images": _IMAGES}, "rand_skip"),
    "shuffle_images": ({"images": _IMAGES}, "shuffle"),
    "new_height": ({"images": _IMAGES}, "new_height"),
    "new_width": ({"images": _IMAGES}, "new_width"),
    "concat_dim": ({"concat": "concat_param"}, "concat_dim"),
    "det_fg_threshold": (_WINDOWED, "fg_threshold"),
    "det_bg_threshold": (_WINDOWED, "bg_threshold"),
    "det_fg_fraction": (_WINDOWED, "fg_fraction"),
    "det_context_pad": (_WINDOWED, "context_pad"),
    "det_crop_mode": (_WINDOWED, "crop_mode"),
}


def upgrade_v0(net: Any, note: Callable[[str], None]) -> None:
    """Convert the layers of version 0 to version 1.

    Args:
        net: A NetParameter; changed.
        note: Called with a line on everything that version 1 cannot represent.

    Raises:
        CaffeError: A type is unknown, or a padding cannot be moved to the next layer.
    """
    _fold_paddings(net)
    for each in net.layers:
        if each.HasField("layer"):
            _upgrade_layer(each, note)


def _fold_paddings(net: Any) -> None:
    """Move the padding of padding layers to the layers that follow."""
    paddings: dict[str, Any] = {}
    kept = []
    for each in net.layers:
        if each.layer.type == "padding":
            if len(each.bottom) != 1 or len(each.top) != 1:
                raise CaffeError(f"layer '{each.layer.name}' (padding) has one bottom and one top")
            paddings[each.top[0]] = each
            continue
        for index, bottom in enumerate(each.bottom):
            if bottom in paddings:
                if each.layer.type not in ("conv", "pool") or len(each.bottom) != 1:
                    raise CaffeError(
                        f"layer '{each.layer.name}' ({each.layer.type}) cannot take the padding "
                        f"of '{bottom}': only conv and pool with one bottom can"
                    )
                each.layer.pad = paddings[bottom].layer.pad
                each.bottom[index] = paddings[bottom].bottom[0]
        for top in each.top:
            paddings.pop(top, None)
        kept.append(each)
    net.ClearField("layers")
    net.layers.extend(kept)


def _upgrade_layer(each: Any, note: Callable[[str], None]) -> None:
    old = type(each.layer)()
    old.CopyFrom(each.layer)
    each.ClearField("layer")
    if old.HasField("name"):
        each.name = old.name
    if old.HasField("type"):
        if old.type not in TYPES:
            raise CaffeError(f"layer '{old.name}': version 0 has no type '{old.type}'")
        each.type = each.LayerType.Value(TYPES[old.type])
    for name in ("blobs", "blobs_lr", "weight_decay"):
        getattr(each, name).MergeFrom(getattr(old, name))
    for field, value in old.ListFields():
        if field.name not in ("name", "type", "blobs", "blobs_lr", "weight_decay"):
            _move(each, old.type, field.name, value, note)


def _move(each: Any, kind: str, field: str, value: Any, note: Callable[[str], None]) -> None:
    if field == "hdf5_output_param" and kind == "hdf5_output":
        each.hdf5_output_param.CopyFrom(value)
        return
    messages, name = _MOVES.get(field, ({}, ""))
    if kind not in messages:
        note(f"layer '{each.name}' ({kind}): {field} has no meaning here and is left out")
        return
    target = getattr(each, messages[kind])
    if field in ("weight_filler", "bias_filler"):
        getattr(target, name).CopyFrom(value)
    elif kind == "conv" and field in ("pad", "kernelsize", "stride"):
        getattr(target, name).append(value)
    else:
        setattr(target, name, value)
