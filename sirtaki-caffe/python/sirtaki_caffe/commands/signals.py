"""The effects of SIGINT and SIGHUP on a command that trains or tests."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.solver.solver import Request

_EFFECTS = {"stop": "stop", "snapshot": "snapshot", "none": ""}


@contextmanager
def watched(sigint_effect: str, sighup_effect: str) -> Iterator[Callable[[], Request]]:
    """Record signals within the context; yield a function that returns their requests, once.

    Args:
        sigint_effect: "stop", "snapshot" or "none".
        sighup_effect: The same for SIGHUP.

    Raises:
        CaffeError: An effect is none of these.
    """
    effects = {
        signal.SIGHUP: _effect("sighup_effect", sighup_effect),
        signal.SIGINT: _effect("sigint_effect", sigint_effect),
    }
    noted: set[str] = set()

    def note(number: int, _: FrameType | None) -> None:
        noted.add(effects[signal.Signals(number)])

    def take() -> Request:
        found = set(noted)
        noted.difference_update(found)  # keeps signals that arrive meanwhile
        return Request(stop="stop" in found, snapshot="snapshot" in found)

    before: dict[int, Any] = {number: signal.signal(number, note) for number in effects}
    try:
        yield take
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _effect(flag: str, word: str) -> str:
    if word not in _EFFECTS:
        raise CaffeError(f"--{flag}={word}: must be stop, snapshot or none")
    return _EFFECTS[word]
