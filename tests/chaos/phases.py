"""Keeps a process in a phase of its job until somebody has done it harm: for the tests of phases.

CHAOS_phase names the phase, and CHAOS_VICTIM the process. It leaves the file `there` in
CHAOS_FOLDER when it has come there, and goes on when it finds `go`.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable
from pathlib import Path

from sirtaki.core.config import Config
from sirtaki.core.world import lifecycle


class Phase(enum.Enum):
    """Where a fault may come."""

    COLLECTIVE = "in a collective"
    USER_CODE = "in user code"
    INIT = "in init"
    RECOVERY = "during recovery"


# The phases of steps come in this epoch.
EPOCH = 1
_FOLDER = Path(os.environ.get("CHAOS_FOLDER", "/nonexistent"))
_phase = os.environ.get("CHAOS_PHASE", "")
_IS_VICTIM = os.environ.get("CHAOS_VICTIM") == os.environ.get("SIRTAKI_PROCESS")
_POLL = 0.02


def _wait(obey_orders: Callable[[], None]) -> None:
    while not (_FOLDER / "go").exists():
        obey_orders()
        time.sleep(_POLL)


def _hold(obey_orders: Callable[[], None]) -> None:
    (_FOLDER / "there").touch()
    _wait(obey_orders)
    obey_orders()


def at_step(epoch: int, obey_orders: Callable[[], None]) -> None:
    """Between two collectives: the victim waits in the user's code."""
    if _phase == Phase.USER_CODE.name and epoch == EPOCH and _IS_VICTIM:
        _hold(obey_orders)


def at_collective(epoch: int, obey_orders: Callable[[], None]) -> None:
    """Right before a collective: the victim goes into it, and all others leave it waiting there."""
    if _phase != Phase.COLLECTIVE.name or epoch != EPOCH:
        return
    if _IS_VICTIM:
        (_FOLDER / "there").touch()
    else:
        _wait(obey_orders)


def hold_in_meetings(obey_orders: Callable[[], None]) -> None:
    """Let the victim wait where it is about to meet the others, at first or in the next world."""
    if not _IS_VICTIM or _phase not in (Phase.INIT.name, Phase.RECOVERY.name):
        return
    meet = lifecycle.meeting_of_start
    meetings = 0

    def late(config: Config) -> object:
        nonlocal meetings
        meetings += 1
        if meetings == (1 if _phase == Phase.INIT.name else 2):
            _hold(obey_orders)
        return meet(config)

    lifecycle.meeting_of_start = late  # type: ignore[assignment]
