"""What is different for each backend of Keras.

Each module has the same names: `Compression`, of the backend's tensors; `Reduction`, of its
gradients; `Step`, what a distributed optimizer does with them; `mixin`, which makes a class of
optimizers do it; `operations`, where the collectives of tensors are; `broadcast_variables`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from sirtaki.keras.library import BACKEND

backend: Final[ModuleType] = importlib.import_module(f"sirtaki.keras.backends.{BACKEND}_backend")
