"""For which share of the time ranks were blocked in our calls, from two looks at what they tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def exposed_share(before: Mapping[str, Any], now: Mapping[str, Any]) -> float | None:
    """Return the share of the time between two looks in which threads were blocked in our calls.

    Args:
        before: ``at``, ``exposed``, ``calls``, and ``completed`` of the rank, at the earlier look.
        now: The same at the later one.

    Returns:
        None where operations have ended for which nobody has called: then the framework waits in
        its own code, as compiled functions of TensorFlow and JAX do. None too of another process.
    """
    if "calls" not in before or "calls" not in now:
        return None  # a rank of another version
    calls, ended = (now[name] - before[name] for name in ("calls", "completed"))
    seconds = now["at"] - before["at"]
    if calls < 0 or seconds <= 0 or (calls == 0 and ended > 0):
        return None
    return float(min(1.0, max(0.0, (now["exposed"] - before["exposed"]) / seconds)))
