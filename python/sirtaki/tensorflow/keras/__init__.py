"""Horovod's API for Keras on TensorFlow; all of `sirtaki.keras`."""

from __future__ import annotations

from sirtaki.keras import *  # noqa: F403
from sirtaki.keras import __all__ as __all__
