"""The meeting of a group's members at a store that earlier meetings of the same name used.

Rank 0 chooses a number unique to the meeting and writes it to the store, where the others read it:
no process has to know how often another has met before. The next rank 0 replaces the number of one
that died, and ranks that have used the old number try again. After the meeting its keys are removed
from the store; only the list of members stays until they leave.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from torch._C._distributed_c10d import Store
from torch.distributed import DistStoreError

from sirtaki.rendezvous.host.presence import own_boot, own_namespace, stat_of
from sirtaki.rendezvous.trust import digests
from sirtaki.torch.distributed.meeting.store import TorchStore

T = TypeVar("T")

_NUMBER_BYTES = 8
_NOW = "now"
_NOTHING = b"-"
_PAUSE_SECONDS = 0.02


class MeetingTimeoutError(DistStoreError, TimeoutError):
    """Some members of a group did not arrive; the message names them.

    Programs that wait for PyTorch's own groups catch its store's error.
    """


@contextlib.contextmanager
def as_of_pytorch(seconds: float) -> Iterator[None]:
    """Convert a meeting's timeout after this time to the error of PyTorch's store."""
    try:
        yield
    except TimeoutError as error:
        raise MeetingTimeoutError(f"{error} (timeout after {1000 * seconds:.0f}ms)") from error


class _SupersededError(Exception):
    """The meeting joined by this rank is no longer rank 0's current one."""


@dataclass(frozen=True)
class _Process:
    """A process as visible to others on its host, and its names in messages."""

    pid: int
    started: str
    where: str
    host: str

    @classmethod
    def own(cls) -> _Process:
        where = f"{own_boot()} {own_namespace()}"
        return cls(os.getpid(), _start_of(os.getpid()), where, socket.gethostname())

    def packed(self) -> bytes:
        return json.dumps([self.pid, self.started, self.where, self.host]).encode()

    def is_another_that_lives(self, packed: bytes) -> _Process | None:
        """Return the recorded process if it is a different, live process on this host."""
        try:
            pid, started, where, host = json.loads(packed)
        except (ValueError, TypeError):
            return None
        other = _Process(int(pid), str(started), str(where), str(host))
        here = other.where == self.where and other.pid != self.pid
        return other if here and _start_of(other.pid) == other.started else None


class Meeting:
    """One rank's part in the meetings of a group's members at a store.

    Args:
        store: PyTorch's store, the same for all members.
        name: The group's name, the same for all members.
        rank: This process's number in the group.
        size: The number of members.
        seconds: The time limit in seconds.
    """

    def __init__(self, store: Store, name: str, rank: int, size: int, seconds: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._base = f"sirtaki/{digests.sha256(name.encode()).hex()[:16]}"
        self._hall = TorchStore(store, self._base)
        self._own = _Process.own()
        self._member = f"member {rank}"

    def hold(self, join: Callable[[TorchStore, str, float], T]) -> tuple[T, TorchStore]:
        """Meet the others.

        Args:
            join: Meets them at a store under a number unique to the meeting, within a number of
                seconds.

        Returns:
            The result of `join`, and the store passed to it.

        Raises:
            ValueError: Another live process has the same rank.
            TimeoutError: Rank 0 did not arrive, or `join` raised it.
        """
        self._take_place()
        try:
            while True:
                number = self._lead() if self._rank == 0 else self._follow()
                store = TorchStore(self._store, f"{self._base}/{number}", self._look_for(number))
                try:
                    if self._rank == 0 or store.is_first(f"came {self._rank}"):
                        joined = join(store, number, self._left())
                        self._end()
                        forget(store, self._rank, self._size)
                        return joined, TorchStore(self._store, f"{self._base}/{number}")
                    # This rank has used this number before, in this or an earlier process.
                    self._pause(number)
                except _SupersededError:
                    continue
                except BaseException:
                    with contextlib.suppress(OSError):
                        self._end()
                    raise
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Let another process have this rank."""
        with contextlib.suppress(OSError):
            self._hall.remove(self._member)

    def _take_place(self) -> None:
        """Record the owner of this rank. Raises ValueError if another process has it."""
        mine = self._own.packed()
        found = self._hall.swap(self._member, b"", mine)
        while found != mine:
            other = self._own.is_another_that_lives(found)
            if other is not None:
                raise ValueError(
                    f"rank {self._rank} of this group is at the store already: process "
                    f"{other.pid} on {other.host} has the same rank and has not left"
                )
            found = self._hall.swap(self._member, found, mine)

    def _lead(self) -> str:
        number = os.urandom(_NUMBER_BYTES).hex()
        self._hall.set(_NOW, number.encode())
        return number

    def _follow(self) -> str:
        try:
            return self._hall.get(_NOW, self._left()).decode()
        except TimeoutError as error:
            raise TimeoutError(
                f"rank {self._rank} of the group: rank 0 did not come within {self._seconds:g} s"
            ) from error

    def _pause(self, number: str) -> None:
        """Wait until rank 0 is at another meeting."""
        look = self._look_for(number)
        while True:
            look()
            if self._left() <= 0:
                raise TimeoutError(
                    f"rank {self._rank} of the group: rank 0 did not come, or another process has "
                    "taken this rank's place"
                )
            time.sleep(_PAUSE_SECONDS)

    def _look_for(self, number: str) -> Callable[[], None]:
        def look() -> None:
            if self._hall.swap(_NOW, _NOTHING, _NOTHING) != number.encode():
                raise _SupersededError

        return look

    def _end(self) -> None:
        if self._rank == 0:
            self._hall.remove(_NOW)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def forget(store: TorchStore, rank: int, size: int) -> None:
    """Remove a meeting's keys from its store; every rank calls it after meeting the others.

    Others may still have to read rank 0's keys: the last rank removes them.
    """
    keys = store.left()
    if rank == 0:
        store.set("kept", json.dumps(keys).encode())
    else:
        for key in keys:
            store.remove(key)
    if store.count("met") == size:
        for key in json.loads(store.get("kept", 1.0)):
            store.remove(key)
        for other in range(1, size):
            store.remove(f"came {other}")
        store.remove("kept")
        store.remove("met")


def _start_of(pid: int) -> str:
    """Return the start time of a process, "" if it does not live."""
    found = stat_of(pid)
    return "" if found.state in "ZX" else found.started
