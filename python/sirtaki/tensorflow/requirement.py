"""Refuses a TensorFlow that is too old, before another import fails without an explanation."""

from __future__ import annotations

_NEEDED = "sirtaki.tensorflow needs TensorFlow 2.16 or later: pip install 'tensorflow>=2.16'"

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(_NEEDED) from error

if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16):
    raise ImportError(f"{_NEEDED}; here is TensorFlow {tf.__version__}")
