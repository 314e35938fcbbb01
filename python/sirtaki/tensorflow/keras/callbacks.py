"""The callbacks of `sirtaki.keras`."""

from __future__ import annotations

from sirtaki.keras.callbacks import *  # noqa: F403
from sirtaki.keras.callbacks import __all__ as __all__
