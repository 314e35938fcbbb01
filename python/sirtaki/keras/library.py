"""Which Keras is in use: 3, or `tf_keras` where `TF_USE_LEGACY_KERAS` asks for it."""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

BACKENDS: Final = ("tensorflow", "torch", "jax")

# The same values as TensorFlow takes.
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
    except (ImportError, AttributeError) as error:  # the latter of Keras 2 on a TensorFlow of now
        raise ImportError("sirtaki.keras needs Keras 3: pip install 'keras>=3'") from error
    version = getattr(module, "__version__", "?")
    if not version.partition(".")[0].isdigit() or int(version.partition(".")[0]) < 3:
        raise ImportError(
            f"sirtaki.keras needs Keras 3, not {version}: pip install 'keras>=3'; for Keras 2, pip "
            "install tf_keras and set TF_USE_LEGACY_KERAS=1"
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
