"""Functions for ranks to query the Spark task that started them."""

from __future__ import annotations

import os

GPUS = "SIRTAKI_SPARK_GPUS"


def get_available_devices() -> list[str]:
    """Return the addresses of the GPUs that Spark assigned to this rank's task; [] without any."""
    return [address for address in os.environ.get(GPUS, "").split(",") if address]
