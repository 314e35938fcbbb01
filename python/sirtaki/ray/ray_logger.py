"""`log`: sends data from a worker to the callbacks of the program that started it."""

from __future__ import annotations

import warnings
from typing import Any


class _Logger:
    queue: Any = None
    warned = False


def configure(queue: Any) -> None:
    """Set the destination of `log`: a `ray.util.queue.Queue`, or None for nowhere."""
    _Logger.queue = queue


def log(info_dict: dict[str, Any]) -> None:
    """Send a dict to the callbacks passed to `run`; without any, warn once.

    Args:
        info_dict: The data to send; it must be picklable.
    """
    if _Logger.queue is not None:
        _Logger.queue.put(info_dict)
    elif not _Logger.warned:
        _Logger.warned = True
        warnings.warn(
            "ray_logger.log has nowhere to send to: give callbacks to run()", stacklevel=2
        )
