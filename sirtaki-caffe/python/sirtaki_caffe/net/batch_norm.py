"""Determines the BatchNorm layers that scale and shift: never BVLC's, but Intel's engine's."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

KINDS = ("BatchNorm", "MKLBatchNorm")
AFFINE_ENGINES = ("MKLDNN", "MKL2017")
_ENGINE_NUMBERS = {"CAFFE": 1, "MKL2017": 3, "MKLDNN": 4}

# Fields only in Intel's schema, used by nets that only its default engine trains correctly.
_INTEL_NET_FIELDS = ("bn_stats_batch_size", "multinode", "compile_net_state")
_INTEL_LAYER_FIELDS = {
    "batch_norm_param": ("use_weight_bias", "bias_term", "filler", "bias_filler"),
    "data_param": ("shuffle",),
    "transform_param": ("random_resize_param", "random_aspect_ratio_param"),
}
_INTEL_SOLVER_FIELDS = (
    "ap_version",
    "eval_type",
    "local_gw_ratio",
    "local_lr_auto",
    "show_per_class_result",
    "test_offset",
    "warmup_iter",
    "warmup_start_lr",
)
_INTEL_SOLVER_LISTS = ("plateau_winsize", "stageiter", "stagelr")


def engine_of_solver(param: Any) -> str:
    """Return the engine that a solver selects, by name or by Intel's own fields."""
    if param.engine:
        return str(param.engine)
    intels = any(_has(param, field) for field in _INTEL_SOLVER_FIELDS)
    return "MKLDNN" if intels or any(getattr(param, f) for f in _INTEL_SOLVER_LISTS) else ""


def settle_batch_norm(net: Any, engine: str) -> None:
    """Set for each BatchNorm whether it has its own scale and shift.

    BVLC's BatchNorm only normalises: it has 3 blobs, and a Scale layer after it scales. A BatchNorm
    of Intel's engines MKLDNN and MKL2017, its default, has two more, unless a Scale with one bottom
    is the first to read its top. Intel then removes the Scale and moves its params to the
    BatchNorm; here the Scale remains, with the BatchNorm's fillers if there are any (a
    `filler { value: 0 }` starts a residual branch at zero). So:

    * The engine is the layer's own (`engine` of the layer, then of `batch_norm_param`), else the
      one requested by flag, solver or net. A solver with fields that only Intel has, for example
      warm-up, selects MKLDNN if it names none (`engine_of_solver`).
    * By default it is MKLDNN for a file that only Intel's build reads, because it uses a field of
      its own (`filler` of a BatchNorm, `shuffle` of `data_param`, `bn_stats_batch_size`, ...),
      and CAFFE for all others.
    * With Intel's engine `use_weight_bias: true` is set, unless the file sets false or a Scale
      follows: then it is false. With CAFFE it is false.
    * A weights file with 5 blobs for a BatchNorm of 3 passes the last two to the Scale that
      follows; without one, the BatchNorm becomes affine (`sirtaki_caffe.net.weights`).

    The layer reads only `use_weight_bias` of the message, which is always set after this.

    Args:
        net: A NetParameter, filtered; changed.
        engine: The engine requested by flag or solver; "" if none.
    """
    asked = engine or net.engine or ("MKLDNN" if _is_intels(net) else "")
    for index, layer in enumerate(net.layer):
        if layer.type not in KINDS:
            continue
        norm = layer.batch_norm_param
        scale = scale_after(net, index)
        intels = _engine_of(layer, asked) in AFFINE_ENGINES
        if intels and scale is not None and norm.use_weight_bias:
            _hand_over_fillers(norm, net.layer[scale].scale_param)
        norm.use_weight_bias = intels and scale is None and norm.use_weight_bias


def _engine_of(layer: Any, asked: str) -> str:
    if layer.type == "MKLBatchNorm":
        return "MKL2017"
    if layer.engine:
        return str(layer.engine).split(":")[0]
    for name, number in _ENGINE_NUMBERS.items():
        if layer.batch_norm_param.engine == number:
            return name
    return asked.split(":")[0]


def _is_intels(net: Any) -> bool:
    if any(_has(net, field) for field in _INTEL_NET_FIELDS):
        return True
    return any(
        _has(getattr(layer, message), field)
        for layer in net.layer
        for message, fields in _INTEL_LAYER_FIELDS.items()
        if layer.HasField(message)
        for field in fields
    )


def _has(message: Message, field: str) -> bool:
    return bool(message.HasField(field))


def scale_after(net: Any, index: int) -> int | None:
    """Return the index of the Scale with one bottom that first reads a layer's top, or None.

    Splits are transparent.
    """
    tops = set(net.layer[index].top)
    for place in range(index + 1, len(net.layer)):
        layer = net.layer[place]
        if not tops.intersection(layer.bottom):
            continue
        if layer.type == "Split":
            tops.update(layer.top)
            continue
        return place if layer.type == "Scale" and len(layer.bottom) == 1 else None
    return None


def _hand_over_fillers(norm: Any, scale: Any) -> None:
    if norm.HasField("filler"):
        scale.filler.CopyFrom(norm.filler)
    if norm.HasField("bias_filler"):
        scale.bias_filler.CopyFrom(norm.bias_filler)
