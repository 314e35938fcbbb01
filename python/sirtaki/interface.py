"""What this package is compatible with; loads nothing, so that launcher and doctor can ask."""

from __future__ import annotations

# Of Horovod; libraries compare it before they use a feature.
HOROVOD_VERSION = "0.28.1"
