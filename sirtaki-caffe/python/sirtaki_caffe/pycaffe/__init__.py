"""The names of pycaffe: nets, solvers and arrays for scripts."""

from __future__ import annotations

from sirtaki_caffe.layers.base import layer_kinds
from sirtaki_caffe.net.array_blob import ArrayBlob as Blob
from sirtaki_caffe.proto.schema import TEST, TRAIN
from sirtaki_caffe.pycaffe import io
from sirtaki_caffe.pycaffe.classifier import Classifier
from sirtaki_caffe.pycaffe.detector import Detector
from sirtaki_caffe.pycaffe.layer import Layer
from sirtaki_caffe.pycaffe.mode import (
    NCCL,
    Timer,
    has_nccl,
    init_log,
    log,
    set_device,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from sirtaki_caffe.pycaffe.net import Net
from sirtaki_caffe.pycaffe.net_spec import NetSpec, layers, params, to_proto
from sirtaki_caffe.pycaffe.solver import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    Solver,
    get_solver,
)

#: The version of Caffe whose interface this is.
__version__ = "1.0.0"


def layer_type_list() -> list[str]:
    """Return the names of all layer types."""
    return layer_kinds()


__all__ = [
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "Classifier",
    "Detector",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "Timer",
    "__version__",
    "get_solver",
    "has_nccl",
    "init_log",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "params",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
]
