"""What a training function must not lose when processes come and go."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sirtaki.core import elastic
from sirtaki.core.errors import HostsUpdatedInterrupt


class State:
    """State of a training function, mirrors ``horovod.common.elastic.State``.

    Args:
        bcast_object: Broadcasts an object from rank 0: ``bcast_object(obj)`` returns it.
        get_rank: Returns this process's rank.
    """

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **_: Any
    ) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        # Programs put their own messages in: (timestamp, result).
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], object]] = []
        self._leave_callbacks: list[Callable[[], object]] = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Have functions called after each new world, before training goes on.

        Args:
            callbacks: Called in this order, for example to adapt the learning rate to the size.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapt to a new world, and call the reset callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def register_leave_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Have functions called when all ranks are asked to leave, after the last commit.

        Args:
            callbacks: Called in this order, on all ranks together, for example to save a
                checkpoint with ``async_=False``.
        """
        self._leave_callbacks.extend(callbacks)

    def on_leave(self) -> None:
        """Call the leave callbacks."""
        for callback in self._leave_callbacks:
            callback()

    def forget_host_updates(self) -> None:
        """Forget what was said of the hosts of the world that ends."""
        self._host_messages = queue.Queue()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that hosts have come or gone; `check_host_updates` tells all ranks together.

        Args:
            timestamp: When, as ``time.time()`` counts.
            update_res: 1 where hosts have gone, 2 where they have come, 3 for both.
        """
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then see whether hosts have come or gone.

        Raises:
            HostsUpdatedInterrupt: They have.
        """
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """See whether hosts have come or gone; every rank calls it.

        Raises:
            HostsUpdatedInterrupt: They have; all ranks raise it together.
        """
        if not elastic.is_elastic():
            return
        last, result = self._last_updated_timestamp, 0
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > last:
                last, result = timestamp, result | update
        # What rank 0 knows counts, so that all are interrupted at the same step.
        before, self._last_updated_timestamp, result = self._bcast_object(
            (self._last_updated_timestamp, last, result)
        )
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(result == elastic.REMOVED)

    def save(self) -> None:
        """Save the state in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Return to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to a new world; for subclasses."""


class ObjectState(State):
    """State of plain Python objects, mirrors ``horovod.common.elastic.ObjectState``.

    Args:
        bcast_object: See `State`.
        get_rank: See `State`.
        kwargs: Become attributes, which are saved, restored, and synchronized by pickling them.
    """

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            object.__setattr__(self, name, value)
        self._saved_state = copy.deepcopy(kwargs)

    def save(self) -> None:
        """See `State`."""
        self._saved_state = copy.deepcopy({name: getattr(self, name) for name in self._saved_state})

    def restore(self) -> None:
        """See `State`."""
        for name, value in copy.deepcopy(self._saved_state).items():
            object.__setattr__(self, name, value)

    def sync(self) -> None:
        """See `State`."""
        if self._saved_state:
            mine = {name: getattr(self, name) for name in self._saved_state}
            for name, value in self._bcast_object(mine).items():
                object.__setattr__(self, name, value)
        # At once, for a loss in between is to leave what was saved before.
        self.save()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves: the attributes as they are, not as last committed."""
        return {name: getattr(self, name) for name in self._saved_state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the attributes of `state_dict`, and commit them.

        Raises:
            ValueError: It is of a state with other attributes.
        """
        require_names(self._saved_state, state_dict)
        for name, value in state_dict.items():
            object.__setattr__(self, name, value)
        self.save()


def require_names(mine: Iterable[str], loaded: Iterable[str]) -> None:
    """Raise ValueError if a state and what is loaded into it have different attributes."""
    different = sorted(set(mine) ^ set(loaded))
    if different:
        raise ValueError(f"only one of both states has {', '.join(different)}")


def require_shapes(mine: Sequence[Iterable[int]], loaded: Sequence[Any]) -> None:
    """Raise ValueError if variables and the arrays that are loaded into them differ in shape."""
    here, there = [tuple(shape) for shape in mine], [tuple(array.shape) for array in loaded]
    if len(here) != len(there):
        raise ValueError(f"it has {len(there)} variables, here are {len(here)}")
    for index, (one, other) in enumerate(zip(here, there, strict=True)):
        if one != other:
            raise ValueError(f"variable {index} was saved with shape {other}, here it has {one}")
