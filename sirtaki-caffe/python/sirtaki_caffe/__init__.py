"""Caffe's nets unchanged: prototxt files trained by PyTorch, on many processes.

The names of pycaffe are here too, loaded on first use; `import caffe` has them as well.
"""

from __future__ import annotations

import importlib
from typing import Any

from sirtaki_caffe.errors import CaffeError, LayerError

_PYCAFFE = [
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
    "get_solver",
    "has_nccl",
    "init_log",
    "io",
    "layer_type_list",
    "log",
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

__all__ = ["CaffeError", "LayerError"]
__all__ += _PYCAFFE


def __getattr__(name: str) -> Any:
    if name not in _PYCAFFE:
        raise AttributeError(f"module 'sirtaki_caffe' has no attribute '{name}'")
    return getattr(importlib.import_module("sirtaki_caffe.pycaffe"), name)
