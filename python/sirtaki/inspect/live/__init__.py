"""The speed of a job's ranks, as a table, a screen, a web page and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sirtaki.launch.flags.settings import Settings


def open_metrics(
    settings: Settings, store: str, say: Callable[[str], object]
) -> contextlib.AbstractContextManager[None]:
    """Return a context in which metrics are served and written; see `metrics_of`."""
    if settings.metrics is None:
        return contextlib.nullcontext()
    # Here, because other jobs start faster without it.
    from sirtaki.inspect.live.metrics import metrics_of

    return metrics_of(settings.metrics, store, say)
