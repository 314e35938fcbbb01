"""The Keras in use: Keras 3, or `tf_keras` if `TF_USE_LEGACY_KERAS` selects it."""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

from sirtaki.frameworks import frameworks

BACKENDS: Final = frameworks()["keras"].backends

# The values that TensorFlow accepts.
LEGACY: Final = os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")


def _import() -> Any:
    if LEGACY:
        try:
            return importlib.import_module("tf_keras")
        except ImportError as error:
            raise ImportError(
                "TF_USE_LEGACY_KERAS asks for Keras 2, which is another package: pip install "
                "tf_keras, or unset the variable to use Keras 3"
            ) from error
    try:
        module = importlib.import_module("keras")
    except (ImportError, AttributeError) as error:  # the latter by Keras 2 on a new TensorFlow
        raise ImportError("sirtaki.keras needs Keras 3: pip install 'keras>=3.8'") from error
    version = getattr(module, "__version__", "?")
    if not version.partition(".")[0].isdigit() or int(version.partition(".")[0]) < 3:
        raise ImportError(
            f"sirtaki.keras needs Keras 3, not {version}: pip install 'keras>=3.8'; for Keras 2, "
            "pip install tf_keras and set TF_USE_LEGACY_KERAS=1"
        )
    return module


def _backend() -> str:
    name = "tensorflow" if LEGACY else str(keras.backend.backend())
    if name not in BACKENDS:
        raise ImportError(
            f"Keras's backend {name} does not train on several ranks; set KERAS_BACKEND to one of "
            f"{', '.join(BACKENDS)}"
        )
    return name


keras: Final[Any] = _import()
BACKEND: Final = _backend()
