"""The compiled operations, and whether they serve this TensorFlow."""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf

import sirtaki
from sirtaki import ffi


@cache
def compiled() -> Any:
    """Return the module of compiled operations; None where they do not serve.

    `SIRTAKI_TF_OPS=0` leaves them alone. Without them operations run as Python functions of the
    graph, which is slower and cannot be saved with it.
    """
    if os.environ.get("SIRTAKI_TF_OPS") == "0":
        return None
    path = str(Path(sirtaki.__file__).with_name("libsirtaki_tf.so"))
    try:
        operations = tf.load_op_library(path)
        connect = ctypes.CDLL(path).sirtaki_tf_connect
    except (tf.errors.OpError, OSError, AttributeError) as error:
        return _unfit(str(error))
    connect.argtypes = [ctypes.c_void_p]
    connect.restype = ctypes.c_char_p
    problem = connect(ffi.address())
    return _unfit(problem.decode()) if problem else operations


def _unfit(why: str) -> None:
    warnings.warn(
        f"the compiled operations do not serve TensorFlow {tf.__version__} ({why}); slower ones, "
        "in Python, take their place",
        RuntimeWarning,
        stacklevel=2,
    )
