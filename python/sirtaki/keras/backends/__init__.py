"""The backend-specific parts of the Keras adapter.

Each module has the same names: `Compression` of the backend's tensors; `Reduction` of its
gradients; `Step`, a distributed optimizer's additional work; `mixin`, which adds it to a class of
optimizers; `operations`, the module of its collectives; `broadcast_variables`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from sirtaki.keras.library import BACKEND

backend: Final[ModuleType] = importlib.import_module(f"sirtaki.keras.backends.{BACKEND}_backend")
