"""This process in an elastic job: its places, the driver's updates, checkpoints of rank 0."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sirtaki.core import heartbeat
from sirtaki.core.config import Config
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.threads import start_thread
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

if TYPE_CHECKING:
    from sirtaki.rendezvous.world.placement import Placement


__all__ = [
    "ADDED",
    "LEAVE",
    "REMOVED",
    "await_giving_up",
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
    "say_ending",
    "say_training",
]

_REACH_SECONDS = 30.0
OnUpdate = Callable[[float, int], None]


class _Process:
    """State of this process that outlives its worlds."""

    applicant: Applicant | None = None
    pid: int = 0
    secret: bytes | None = None
    listener: OnUpdate | None = None
    # Arrived while nobody listened.
    kept: tuple[int, Update] | None = None
    # The epoch whose update a thread awaits.
    awaited: int = -1
    leave_code: int = 0
    has_left: bool = False
    preparations: ClassVar[list[Callable[[], object]]] = []


def prepare(preparation: Callable[[], object]) -> None:
    """Run a function before this process asks for its first place.

    Nobody waits for a process until it has asked, so slow work is done by then.
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
        _Process.pid = os.getpid()
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
    """Return how long `size` processes that are ready may take to meet."""
    return 5.0 + 0.05 * size


def is_elastic() -> bool:
    """Return whether a driver assigns this process's places."""
    return _Process.applicant is not None


def require_driver(error: Exception) -> None:
    """Print why there is no world yet; raise the error if the driver is gone."""
    assert _Process.applicant is not None
    try:
        _Process.applicant.greet()
    except OSError:
        raise error from None
    text = str(error).partition("\n")[0]
    print(f"sirtaki: {text}; joining the next world", file=sys.stderr, flush=True)


def has_newcomers() -> bool:
    """Return whether any member of the world is new to the job."""
    return is_elastic() and current_place().fresh > 0


def has_survivors() -> bool:
    """Return whether any member of the world was in an earlier one."""
    return is_elastic() and current_place().fresh < len(current_place().members)


def listen(on_update: OnUpdate | None) -> None:
    """Call a function when hosts have joined or left.

    Args:
        on_update: Called in a thread of its own with the time on the driver's clock and a bit mask:
            1 if hosts have left, 2 if hosts have joined, 4 if all are to leave. None: nothing is
            called.
    """
    _Process.listener = on_update
    if on_update is not None and _Process.kept is not None:
        (epoch, update), _Process.kept = _Process.kept, None
        if epoch == current_place().epoch:
            on_update(update.timestamp, update.result)
    if is_elastic():
        _listen(current_place().epoch)


def _listen(epoch: int) -> None:
    """Await the update of a world, on rank 0 alone, which informs the others at a commit."""
    listens = _Process.listener is not None and current_place().topology.rank == 0
    if listens and _Process.awaited != epoch:
        # If no thread can start, this world ends without an update; the next one tries again.
        with contextlib.suppress(OSError):
            start_thread(_await_update, "sirtaki host updates", (epoch,))
            _Process.awaited = epoch


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
    """Report an error of this process's training function to the driver.

    Args:
        error: The error.
        step: The number of commits of the state.
    """
    if _Process.applicant is not None:
        with contextlib.suppress(OSError):
            _Process.applicant.report(_first_line(error), step)


def _first_line(error: BaseException) -> str:
    """Return the class and the first line of an error.

    In a graph of TensorFlow each error has the same first line, and its cause in a later one.
    """
    first, *rest = f"{type(error).__name__}: {error}".split("\n")
    causes = [line for line in rest if line.partition(": ")[0].endswith("Error")]
    return causes[-1] if causes and first.endswith("Graph execution error:") else first


def await_giving_up() -> None:
    """Notify the driver that this process is about to end, and wait until it is given up.

    Raises:
        OSError: The driver is gone.
    """
    if _Process.applicant is not None:
        _Process.applicant.await_giving_up()


def say_ending() -> None:
    """Notify the driver that this process is ending, which may take a while."""
    if _Process.applicant is not None and _Process.pid == os.getpid():
        with contextlib.suppress(OSError):
            _Process.applicant.ends()


def say_training(signals: Sequence[int]) -> None:
    """Notify the driver that the training function is being called.

    Args:
        signals: The signal numbers that make this process leave between two steps.
    """
    if _Process.applicant is not None:
        with contextlib.suppress(OSError):
            _Process.applicant.trains(signals)


def leave(number: int) -> None:
    """Notify the driver that this process received a signal and wants to leave; return at once.

    Args:
        number: The signal number.
    """
    try:
        start_thread(_leave, "sirtaki leaving", (number,))
    except OSError:
        _leave(number)


def _leave(number: int) -> None:
    assert _Process.applicant is not None
    with contextlib.suppress(OSError):
        _Process.applicant.leaves(number)


def has_left() -> bool:
    """Return whether this process is exiting on the driver's request."""
    return _Process.has_left or _Process.leave_code != 0


def leave_code() -> int:
    """Return this process's exit code, if the driver has told all processes to leave."""
    return _Process.leave_code


def note_checkpoint(path: str, step: int) -> None:
    """Report the location of the last checkpoint to the launcher and to each host.

    It is named when the job ends before its work is done, even if the launcher's host is lost.
    Each rank calls this.

    Args:
        path: The path of the checkpoint, complete on the file system.
        step: The training step, as the program counts.
    """
    heartbeat.write_checkpoint(f"{path} (step {step})")
    if is_elastic() and current_place().topology.rank == 0:
        assert _Process.applicant is not None
        with contextlib.suppress(OSError):
            _Process.applicant.wrote(path, step)


RandomStates = Sequence[Any] | None


class _Resumed:
    """State that this process keeps until it shares a state with all ranks."""

    # On rank 0: the random states of the ranks at the checkpoint.
    random: RandomStates = None
    # On the others: loads the checkpoint if rank 0 is lost; sets the random state.
    loads: ClassVar[list[Callable[[], object]]] = []
    set_random: Callable[[Any], None] | None = None


def note_loaded(random: Sequence[Any]) -> None:
    """Record on rank 0 the checkpoint's random states, by rank."""
    _Resumed.random = random


def leave_to_first(load: Callable[[], object], set_random: Callable[[Any], None]) -> None:
    """Record on another rank that rank 0 loads a checkpoint.

    Args:
        load: Called if this process becomes rank 0 before it has received a state.
        set_random: Sets the random state of this rank.
    """
    _Resumed.loads.append(load)
    _Resumed.set_random = set_random


def become_first() -> None:
    """Load the checkpoint in place of a rank 0 that was lost."""
    while _Resumed.loads:
        _Resumed.loads.pop(0)()


def loaded_random() -> RandomStates:
    """Return on rank 0 the random states for the other ranks."""
    return _Resumed.random


def end_resuming(rank: int, random: RandomStates) -> None:
    """Record that this process shares the state of rank 0, and apply its random state.

    Args:
        rank: This process's rank.
        random: The random states from rank 0.
    """
    if random is not None and _Resumed.set_random is not None and rank < len(random):
        _Resumed.set_random(random[rank])
    _Resumed.random = _Resumed.set_random = None
    _Resumed.loads.clear()
