"""Elastic training with Keras on TensorFlow; all of `sirtaki.keras.elastic`."""

from __future__ import annotations

from sirtaki.keras.elastic import *  # noqa: F403
from sirtaki.keras.elastic import __all__ as __all__
