"""How fast the ranks of a job are, as a table, a screen, a page and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sirtaki.launch.flags.settings import Settings


def open_metrics(
    settings: Settings, store: str, say: Callable[[str], object]
) -> contextlib.AbstractContextManager[None]:
    """Return what serves and writes metrics as long as it is entered; see `metrics_of`."""
    if settings.metrics is None:
        return contextlib.nullcontext()
    # Here, because other jobs start faster without it.
    from sirtaki.launch.live.metrics import metrics_of

    return metrics_of(settings.metrics, store, say)
