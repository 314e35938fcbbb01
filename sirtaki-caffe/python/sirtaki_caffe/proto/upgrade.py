"""Upgrades of nets and solvers from older versions of Caffe.

The steps are Caffe's own, in its order: layers of version 0 (`layers { layer { … } }`), data
transformations in data layers, layers of version 1 (`layers { type: CONVOLUTION }`), inputs that
are not layers, and BatchNorm's params.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import NetParameter, message_class
from sirtaki_caffe.proto.upgrade_v0 import TYPES, Note, ignore, upgrade_v0

V1LayerParameter = message_class("V1LayerParameter")

#: Version 1's names of types that differ in more than underscores and case.
_SPECIAL = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "IM2COL": "Im2col",
    "LRN": "LRN",
    "MVN": "MVN",
    "RELU": "ReLU",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
}
_SOLVERS = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")
_TRANSFORMED = ("data_param", "image_data_param", "window_data_param")
_TRANSFORMATION = ("scale", "mean_file", "crop_size", "mirror")
_COPIED = (
    *("loss_param", "accuracy_param", "argmax_param", "concat_param", "contrastive_loss_param"),
    *("convolution_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param"),
    *("exp_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param"),
    *("image_data_param", "infogain_loss_param", "inner_product_param", "lrn_param"),
    *("memory_data_param", "mvn_param", "pooling_param", "power_param", "relu_param"),
    *("sigmoid_param", "softmax_param", "slice_param", "tanh_param", "threshold_param"),
    *("window_data_param", "transform_param"),
)


def type_of_v1(number: int) -> str:
    """Return the type that version 1 writes as a number, or ""."""
    value = V1LayerParameter.LayerType.DESCRIPTOR.values_by_number.get(number)
    return _camel(value.name) if value is not None else ""


def type_of_v0(name: str) -> str:
    """Return the type with a name of version 0."""
    return _camel(TYPES[name]) if name in TYPES else name


def _camel(name: str) -> str:
    return _SPECIAL.get(name, "".join(word.capitalize() for word in name.split("_")))


def upgrade_net(net: Any, note: Note = ignore) -> Any:
    """Return a net in Caffe's current form; the argument is unchanged.

    Args:
        net: A NetParameter.
        note: Called with a line on each upgrade.

    Raises:
        CaffeError: The net mixes versions, or contradicts itself.
    """
    upgraded = NetParameter()
    upgraded.CopyFrom(net)
    for needed, step, what in _STEPS:
        if needed(upgraded):
            step(upgraded, note)
            note(f"Upgraded {what}")
    return upgraded


def upgrade_solver(solver: Any, note: Note = ignore) -> Any:
    """Return a solver in Caffe's current form, including its nets.

    Args:
        solver: A SolverParameter, which is unchanged.
        note: Called with a line on each upgrade.

    Raises:
        CaffeError: It has both `type` and `solver_type`, or one of its nets cannot be upgraded.
    """
    upgraded = type(solver)()
    upgraded.CopyFrom(solver)
    if upgraded.HasField("solver_type"):
        if upgraded.HasField("type"):
            raise CaffeError("a solver has type or, formerly, solver_type; remove solver_type")
        upgraded.type = _SOLVERS[upgraded.solver_type]
        upgraded.ClearField("solver_type")
        note(f"Upgraded solver_type to type: {upgraded.type}")
    for name in ("net_param", "train_net_param"):
        if upgraded.HasField(name):
            getattr(upgraded, name).CopyFrom(upgrade_net(getattr(upgraded, name), note))
    for net in upgraded.test_net_param:
        net.CopyFrom(upgrade_net(net, note))
    return upgraded


def _has_v0(net: Any) -> bool:
    return any(layer.HasField("layer") for layer in net.layers)


def _has_old_transformation(net: Any) -> bool:
    return any(
        getattr(layer, param).HasField(name)
        for layer in net.layers
        for param in _TRANSFORMED
        if layer.HasField(param)
        for name in _TRANSFORMATION
    )


def _move_transformation(net: Any, note: Note) -> None:
    del note
    for layer in net.layers:
        for param in _TRANSFORMED:
            old = getattr(layer, param)
            for name in _TRANSFORMATION:
                if layer.HasField(param) and old.HasField(name):
                    setattr(layer.transform_param, name, getattr(old, name))
                    old.ClearField(name)


def _upgrade_v1(net: Any, note: Note) -> None:
    del note
    if net.layer:
        raise CaffeError("the net has both 'layer' and, of older nets, 'layers'; use one of them")
    for old in net.layers:
        _upgrade_layer(old, net.layer.add())
    net.ClearField("layers")


def _upgrade_layer(old: Any, new: Any) -> None:
    new.name = old.name
    new.type = type_of_v1(old.type)
    for name in ("bottom", "top", "loss_weight", "blobs", "include", "exclude"):
        getattr(new, name).MergeFrom(getattr(old, name))
    for field, values in (
        ("name", old.param),
        ("share_mode", old.blob_share_mode),
        ("lr_mult", old.blobs_lr),
        ("decay_mult", old.weight_decay),
    ):
        for index, value in enumerate(values):
            while len(new.param) <= index:
                new.param.add()
            setattr(new.param[index], field, value)
    for name in _COPIED:
        if old.HasField(name):
            getattr(new, name).CopyFrom(getattr(old, name))


def _inputs_to_layer(net: Any, note: Note) -> None:
    del note
    shapes = [list(shape.dim) for shape in net.input_shape]
    if not shapes:
        dims = list(net.input_dim)
        shapes = [dims[at : at + 4] for at in range(0, len(dims), 4)]
        if dims and len(dims) != 4 * len(net.input):
            raise CaffeError(f"{len(net.input)} inputs need 4 input_dim each, {len(dims)} given")
    if shapes:
        if len(shapes) != len(net.input):
            raise CaffeError(f"{len(net.input)} inputs have {len(shapes)} input_shape")
        layers = list(net.layer)
        net.ClearField("layer")
        net.layer.add(name="input", type="Input", top=net.input)
        for shape in shapes:
            net.layer[0].input_param.shape.add(dim=shape)
        net.layer.extend(layers)
    for name in ("input", "input_shape", "input_dim"):
        net.ClearField(name)


def _old_batch_norms(net: Any) -> list[Any]:
    return [
        layer
        for layer in net.layer
        if layer.type == "BatchNorm" and len(layer.param) == 3
        if any(param.lr_mult != 0 or param.decay_mult != 0 for param in layer.param)
    ]


def _freeze_batch_norms(net: Any, note: Note) -> None:
    del note
    for layer in _old_batch_norms(net):
        for param in layer.param:
            param.lr_mult = 0
            param.decay_mult = 0


_Needed = Callable[[Any], Any]
_Step = Callable[[Any, Note], None]
_STEPS: tuple[tuple[_Needed, _Step, str], ...] = (
    (_has_v0, upgrade_v0, "layers of version 0 (V0LayerParameter)"),
    (_has_old_transformation, _move_transformation, "transformations to transform_param"),
    (lambda net: net.layers, _upgrade_v1, "layers of version 1 (V1LayerParameter)"),
    (lambda net: net.input, _inputs_to_layer, "inputs to an Input layer"),
    (_old_batch_norms, _freeze_batch_norms, "BatchNorm layers: their params do not learn"),
)
