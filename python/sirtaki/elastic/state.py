"""The state that a training function keeps when processes come and go."""

from __future__ import annotations

import copy
import pickle
import queue
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sirtaki.core import elastic
from sirtaki.core.errors import HostsUpdatedInterrupt
from sirtaki.core.operations.objects import allgather_object, flag_of_first, pickled
from sirtaki.core.world import state as world_state

# The version of a state: numbers compared from the left; empty for none yet.
Version = tuple[int, ...]


class State:
    """State of a training function, mirrors ``horovod.common.elastic.State``.

    Args:
        bcast_object: Broadcasts an object: ``bcast_object(obj)`` returns that of rank 0,
            ``bcast_object(obj, rank)`` that of another rank.
        get_rank: Returns this process's rank.
    """

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **_: Any
    ) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        # Programs put in messages of their own: (timestamp, result).
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], object]] = []
        self._leave_callbacks: list[Callable[[], object]] = []
        self._commits = 0
        # Whether the state has been equal on all ranks; a newcomer's has not.
        self._shared = False
        # Random states of ranks, from a checkpoint that rank 0 has loaded.
        self._random_of_ranks: elastic.RandomStates = None

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Register functions to call in each new world, before training goes on.

        Args:
            callbacks: Called in this order, for example to adapt the learning rate to the size.
        """
        self._reset_callbacks.extend(callbacks)
        world_state.note_changes()

    def register_leave_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Register functions to call when all processes leave because the launcher got a signal.

        All ranks call them after the same commit, while their world still exists, before they
        exit. They are the place to write a checkpoint.

        Args:
            callbacks: Called in this order.
        """
        self._leave_callbacks.extend(callbacks)

    def on_leave(self) -> None:
        """Call the leave callbacks."""
        for callback in self._leave_callbacks:
            callback()

    def on_reset(self) -> None:
        """Adapt to a new world, and call the reset callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_failure(self, error: Exception) -> None:
        """Note that the training function has failed; for subclasses."""

    def forget_host_updates(self) -> None:
        """Forget updates about the hosts of the world that ends."""
        self._host_messages = queue.Queue()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Record that hosts were added or removed; `check_host_updates` informs all ranks together.

        Args:
            timestamp: The time, on a monotonic clock; an update that is not newer is dropped.
            update_res: 1 if hosts were removed, 2 if they were added, 3 for both; 4 if all
                processes have to leave.
        """
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then check whether hosts were added or removed.

        Raises:
            HostsUpdatedInterrupt: They were.
        """
        self._commits += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Check whether hosts were added or removed; every rank calls it.

        Raises:
            HostsUpdatedInterrupt: They were; all ranks raise it together.
            SystemExit: All ranks leave together.
        """
        if not elastic.is_elastic():
            return
        # Rank 0's knowledge counts, so that all are interrupted at the same step. Usually there is
        # no news, which takes one byte.
        if not _any_news(not self._host_messages.empty()):
            return
        last, result = self._last_updated_timestamp, 0
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > last:
                last, result = timestamp, result | update
        before, self._last_updated_timestamp, result, code = self._bcast_object(
            (self._last_updated_timestamp, last, result, elastic.leave_code())
        )
        if result & elastic.LEAVE:
            self.on_leave()
            sys.exit(code)
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(result == elastic.REMOVED)

    def save(self) -> None:
        """Save the state in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restore the state that was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks the newest state that one of them has.

        Each new world begins with it. Call it after ``hvd.join()`` too: a rank that joined early
        did not take the last steps.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to a new world; for subclasses."""

    def _version(self) -> Version:
        """Return the version of the state after `restore`."""
        return (self._commits,)

    def _adopt(self, version: Version) -> None:
        """Set the version to that of the state from `sync`."""
        (self._commits,) = version or (0,)
        self._shared = True
        elastic.end_resuming(self._rank(), self._random_of_ranks)

    def _newest(self) -> tuple[int, Version]:
        """Agree with all ranks on the rank with the newest state, and return it with the version.

        The ranks of a first world have no state yet, and use rank 0's.
        """
        if not elastic.is_elastic() or not world_state.is_initialized():
            return 0, self._version()
        if not self._shared and world_state.rank() == 0:
            elastic.become_first()
        mine = self._version() if self._shared else (), elastic.loaded_random()
        told = allgather_object(mine, "elastic.versions")
        self._random_of_ranks = told[0][1]
        versions = [version for version, _ in told]
        newest = max(versions)
        return versions.index(newest), newest


def _any_news(here: bool) -> bool:
    """Return whether rank 0 has news; without a world, whether this process has."""
    return flag_of_first(here, "elastic.news") if world_state.is_initialized() else here


class ObjectState(State):
    """State of plain Python objects, mirrors ``horovod.common.elastic.ObjectState``.

    Args:
        bcast_object: See `State`.
        get_rank: See `State`.
        kwargs: Become attributes, which are saved, restored, and synchronized by pickling them.
            Samplers, loaders and other objects with `state_dict` and `load_state_dict` stay the
            same objects; the values of these methods are saved and synchronized, and their
            `reset`, if they have one, is called in each new world.
    """

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            object.__setattr__(self, name, value)
        self._saved_state = _copies({name: _content(value) for name, value in kwargs.items()})

    def save(self) -> None:
        """See `State`."""
        self._saved_state = _copies(self._contents())

    def restore(self) -> None:
        """See `State`."""
        self._take(copy.deepcopy(self._saved_state))

    def on_reset(self) -> None:
        """See `State`."""
        for name in self._saved_state:
            value = getattr(self, name)
            if _has_position(value) and hasattr(value, "reset"):
                value.reset()
        super().on_reset()

    def _contents(self) -> dict[str, Any]:
        return {name: _content(getattr(self, name)) for name in self._saved_state}

    def _take(self, contents: dict[str, Any]) -> None:
        for name, content in contents.items():
            value = getattr(self, name)
            if _has_position(value):
                value.load_state_dict(content)
            else:
                object.__setattr__(self, name, content)

    def sync(self) -> None:
        """See `State`."""
        root, version = self._newest()
        self._sync_from(root, version)
        # Both together: a loss before this point keeps the state saved earlier.
        self._adopt(version)
        self.save()

    def _sync_from(self, root: int, version: Version) -> None:
        """Give all ranks the state of one rank; for subclasses that have more than objects."""
        if not self._saved_state:
            return
        mine = self._contents()
        try:
            # A program's own function may support only rank 0.
            theirs = self._bcast_object(mine, root) if root else self._bcast_object(mine)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            _name_culprit(mine, "pickled", pickled, error)
            raise
        self._take(theirs)

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes for a checkpoint: the current ones, not the last commit."""
        return self._contents()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the attributes of `state_dict`, and commit them.

        Raises:
            ValueError: It has other attributes than this state.
        """
        require_names(self._saved_state, state_dict)
        self._take(state_dict)
        self.save()


def _has_position(value: Any) -> bool:
    """Return whether a value has a position of its own, as samplers and loaders do."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _content(value: Any) -> Any:
    return value.state_dict() if _has_position(value) else value


def require_names(mine: Iterable[str], loaded: Iterable[str]) -> None:
    """Raise ValueError if a state and the loaded one have different attributes."""
    different = sorted(set(mine) ^ set(loaded))
    if different:
        raise ValueError(f"only one of both states has {', '.join(different)}")


def require_shapes(mine: Sequence[Iterable[int]], loaded: Sequence[Any]) -> None:
    """Raise ValueError if variables and the arrays loaded into them differ in shape."""
    here, there = [tuple(shape) for shape in mine], [tuple(array.shape) for array in loaded]
    if len(here) != len(there):
        raise ValueError(f"it has {len(there)} variables, here are {len(here)}")
    for index, (one, other) in enumerate(zip(here, there, strict=True)):
        if one != other:
            raise ValueError(f"variable {index} was saved with shape {other}, here it has {one}")


def say_uncommitted(step: int) -> None:
    """Print that a process was lost after a step was applied and before it was committed."""
    print(
        f"sirtaki: a peer was lost between the optimizer's step {step} and state.commit(); unless "
        "another rank is past it or before it, the objects of the state stay as they are now. Call "
        "nothing that waits for other ranks between step() and commit()",
        file=sys.stderr,
        flush=True,
    )


def _copies(values: dict[str, Any]) -> dict[str, Any]:
    """Return copies, which share objects with each other as the originals do."""
    try:
        return copy.deepcopy(values)
    except Exception as error:
        _name_culprit(values, "copied", copy.deepcopy, error)
        raise


def _name_culprit(
    values: dict[str, Any], how: str, work: Callable[[Any], object], error: Exception
) -> None:
    """Raise a TypeError that names the value for which an action fails."""
    for name, value in values.items():
        try:
            work(value)
        except Exception as why:
            raise TypeError(
                f"the attribute {name!r} of the state, a {type(value).__name__}, cannot be {how}: "
                f"{why}. A state holds what is saved and sent to new processes: keep this outside"
            ) from error
