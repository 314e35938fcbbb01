"""This process in an elastic job: the places that its driver gives it, and what the driver says."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from sirtaki.core import heartbeat
from sirtaki.core.config import Config
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.trust.secret import read_secret
from sirtaki.rendezvous.world.elastic import (
    ADDED,
    LEAVE,
    REMOVED,
    Applicant,
    Place,
    Update,
    placement_of,
)
from sirtaki.rendezvous.world.placement import Placement

__all__ = [
    "ADDED",
    "LEAVE",
    "REMOVED",
    "current_place",
    "has_left",
    "has_newcomers",
    "has_survivors",
    "is_elastic",
    "join_seconds",
    "leave",
    "leave_code",
    "listen",
    "next_placement",
    "note_checkpoint",
    "prepare",
    "report",
    "require_driver",
    "say_training",
]

_REACH_SECONDS = 30.0
OnUpdate = Callable[[float, int], None]


class _Process:
    """What this process remembers between worlds."""

    applicant: Applicant | None = None
    secret: bytes | None = None
    listener: OnUpdate | None = None
    # Came while nobody listened.
    kept: tuple[int, Update] | None = None
    # Epochs whose updates a thread waits for.
    awaited: int = -1
    leave_code: int = 0
    has_left: bool = False
    preparations: ClassVar[list[Callable[[], object]]] = []


def prepare(preparation: Callable[[], object]) -> None:
    """Have something done before this process asks for its first place.

    Nobody waits for a process until it has asked, so what takes long is done by then.
    """
    _Process.preparations.append(preparation)


def next_placement(config: Config) -> Placement:
    """Ask the driver for this process's place in the next world, and wait for it.

    Raises:
        SystemExit: There is no place for this process.
        ConnectionError: The driver is gone.
    """
    heartbeat.descriptor(config.heartbeat_file)
    while _Process.preparations:
        _Process.preparations.pop()()
    place = _applicant(config).ask()
    if place.refusal:
        sys.exit(f"sirtaki: {place.refusal}")
    if place.leaves:
        _Process.has_left = True
        print("sirtaki: the new world has no place for this process, which ends", file=sys.stderr)
        sys.exit(0)
    _listen(place.epoch)
    return placement_of(place, config.rendezvous, _Process.secret)


def _applicant(config: Config) -> Applicant:
    if _Process.applicant is None:
        _Process.secret = read_secret(config.secret_file) if config.secret_file else None
        store = open_store(config.rendezvous, _REACH_SECONDS, _Process.secret)
        _Process.applicant = Applicant(store, config.process_id)
    return _Process.applicant


def current_place() -> Place:
    """Return this process's place in its elastic job.

    Raises:
        ValueError: It is in none.
    """
    if _Process.applicant is None:
        raise ValueError("this process is in no elastic job: start it with horovodrun --min-np")
    return _Process.applicant.place


def join_seconds(size: int) -> float:
    """Return how long so many processes that are ready may take to meet."""
    return 5.0 + 0.05 * size


def is_elastic() -> bool:
    """Tell whether a driver gives this process its places."""
    return _Process.applicant is not None


def require_driver(error: Exception) -> None:
    """Say why there is no world yet; raise the error if the driver will give no other place."""
    assert _Process.applicant is not None
    try:
        _Process.applicant.greet()
    except OSError:
        raise error from None
    text = str(error).partition("\n")[0]
    print(f"sirtaki: {text}; joining the next world", file=sys.stderr, flush=True)


def has_newcomers() -> bool:
    """Tell whether some members of the world have been in none before."""
    return is_elastic() and current_place().fresh > 0


def has_survivors() -> bool:
    """Tell whether some members of the world have been in one before."""
    return is_elastic() and current_place().fresh < len(current_place().members)


def listen(on_update: OnUpdate | None) -> None:
    """Call a function when hosts have come or gone.

    Args:
        on_update: Called in a thread of its own with the time (``time.time()``) and the bits of
            what happened: 1 for hosts that have gone, 2 for hosts that have come, 4 where all are
            to leave. None: nothing.
    """
    _Process.listener = on_update
    if on_update is not None and _Process.kept is not None:
        (epoch, update), _Process.kept = _Process.kept, None
        if epoch == current_place().epoch:
            on_update(update.timestamp, update.result)
    if is_elastic():
        _listen(current_place().epoch)


def _listen(epoch: int) -> None:
    """Await the update of a world; rank 0 alone does, and tells the others at a commit."""
    listens = _Process.listener is not None and current_place().topology.rank == 0
    if listens and _Process.awaited != epoch:
        _Process.awaited = epoch
        threading.Thread(
            target=_await_update, args=(epoch,), name="sirtaki host updates", daemon=True
        ).start()


def _await_update(epoch: int) -> None:
    assert _Process.applicant is not None
    with contextlib.suppress(OSError, ValueError):
        update = _Process.applicant.await_update(epoch)
        if current_place().epoch != epoch:
            return
        _Process.leave_code = update.code
        if _Process.listener is None:
            _Process.kept = (epoch, update)
        else:
            _Process.listener(update.timestamp, update.result)


def report(error: BaseException, step: int) -> None:
    """Tell the driver what the training function of this process has raised.

    Args:
        error: What was raised.
        step: How many commits the state had made.
    """
    if _Process.applicant is not None:
        with contextlib.suppress(OSError):
            _Process.applicant.report(f"{type(error).__name__}: {error}".partition("\n")[0], step)


def say_training(signals: Sequence[int]) -> None:
    """Tell the driver that the training function is called.

    Args:
        signals: The numbers of those that make this process leave between two steps.
    """
    if _Process.applicant is not None:
        with contextlib.suppress(OSError):
            _Process.applicant.trains(signals)


def leave(number: int) -> None:
    """Tell the driver that this process has got a signal and wants to leave; returns at once.

    Args:
        number: Of the signal.
    """
    threading.Thread(target=_leave, args=(number,), name="sirtaki leaving", daemon=True).start()


def _leave(number: int) -> None:
    assert _Process.applicant is not None
    with contextlib.suppress(OSError):
        _Process.applicant.leaves(number)


def has_left() -> bool:
    """Tell whether this process exits because the driver has told it to."""
    return _Process.has_left or _Process.leave_code != 0


def leave_code() -> int:
    """Return with what this process is to exit, where the driver has told it that all leave."""
    return _Process.leave_code


def note_checkpoint(path: str, step: int) -> None:
    """Let the launcher, and each host, know where the last checkpoint is.

    It is named when the job ends before its work is done, also where the launcher's host is lost.
    Each rank calls this.

    Args:
        path: Of the checkpoint, whole on the file system.
        step: Of the training, as the program counts.
    """
    heartbeat.write_checkpoint(f"{path} (step {step})")
    if is_elastic() and current_place().topology.rank == 0:
        assert _Process.applicant is not None
        with contextlib.suppress(OSError):
            _Process.applicant.wrote(path, step)
