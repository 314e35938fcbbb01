"""The messages about worlds between the processes of an elastic job and their driver.

They go through the job's store. A process that wants to be in a world reports that it is ready and
waits for its place, which the driver assigns to all members of a new world at once.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust.auth import own_identity
from sirtaki.rendezvous.words import parse_json
from sirtaki.rendezvous.world.membership import Membership, Topology

if TYPE_CHECKING:
    from sirtaki.rendezvous.world.placement import Placement

# Bits of `Update.result`.
REMOVED = 1
ADDED = 2
# All processes have to leave, with the exit code in the update.
LEAVE = 4
_DAY_SECONDS = 86400.0


class Ready(NamedTuple):
    """A process wants to be in a world.

    id: the driver's number of the process. number: of its earlier requests. epoch: of its last
    world, -1 for none. version: of Sirtaki.
    """

    id: int
    number: int
    epoch: int
    version: str = ""


class Place(NamedTuple):
    """A process's place in a new world.

    epoch: of the new world; -1: the process has no place and must end. members: the ids of all
    members in the order of their ranks. fresh: how many of them were in no world before. topology:
    the place of this process. host_id: distinguishes its host. refusal: why it can have no place in
    any world, "" if it may end with success.
    """

    epoch: int
    members: tuple[int, ...] = ()
    fresh: int = 0
    topology: Topology = Topology()
    host_id: str = ""
    refusal: str = ""

    @property
    def leaves(self) -> bool:
        """Whether the process must end."""
        return self.epoch < 0


class Update(NamedTuple):
    """Hosts were added or removed, or all processes have to leave.

    timestamp: `time.monotonic()` of the driver, because the time of day may be changed. result: the
    bits REMOVED, ADDED and LEAVE. code: the exit code of processes that leave.
    """

    timestamp: float
    result: int
    code: int = 0


class Raised(NamedTuple):
    """A process ends because its training function raised an error.

    id: of the process. text: the error on one line. step: how many commits its state had made.
    """

    id: int
    text: str
    step: int


class Ending(NamedTuple):
    """A process ends, so nobody should wait for it.

    asks: it may still go on if all others raise an error too; otherwise it must end its world.
    """

    id: int
    asks: bool = False


class Training(NamedTuple):
    """A process trains, and may leave between two steps.

    signals: the numbers of signals on which it leaves.
    """

    id: int
    signals: tuple[int, ...]


class Leaving(NamedTuple):
    """A process received a signal and wants to leave."""

    id: int
    signal: int


class Checkpoint(NamedTuple):
    """A process has written a checkpoint. step: the program's number for it."""

    id: int
    path: str
    step: int


Said = Ready | Raised | Ending | Training | Leaving | Checkpoint
_SAID = {kind.__name__.lower(): kind for kind in get_args(Said)}


def _key_of(message: Said) -> str:
    return f"elastic/{type(message).__name__.lower()}/{message.id}"


def place_key(ready: Ready) -> str:
    """Return the key of the place for a process that is ready."""
    return f"elastic/place/{ready.id}/{ready.number}"


def last_place_key(ready: Ready) -> str:
    """Return the key of the previous place of a process that is ready again."""
    return f"elastic/place/{ready.id}/{ready.number - 1}"


def given_up_key(process_id: int) -> str:
    """Return the key that marks a process with an error as given up."""
    return f"elastic/given-up/{process_id}"


def update_key(epoch: int) -> str:
    """Return the key of updates about hosts for the members of a world."""
    return f"elastic/update/{epoch}"


def keys_of_world(epoch: int) -> str:
    """Return the prefix of the keys under which the members of a world meet."""
    return f"world/{epoch}/"


def pack(message: Place | Update | Said) -> bytes:
    """Encode a message as the value of a key."""
    values = message._asdict()
    if isinstance(message, Place):
        values["topology"] = message.topology._asdict()
    return json.dumps(values).encode()


def parse_place(value: bytes) -> Place:
    """Parse a place. Raises ValueError."""
    try:
        told = parse_json(value)
        told["members"] = tuple(told["members"])
        told["topology"] = Topology(**told["topology"])
        return Place(**told)
    except (TypeError, KeyError) as error:
        raise ValueError(f"the driver's answer makes no sense: {error!r}") from error


def parse_said(key: str, value: bytes) -> Said | None:
    """Parse a process's message to the driver; None for any other key. Raises ValueError."""
    folder, _, rest = key.partition("/")
    kind = _SAID.get(rest.partition("/")[0]) if folder == "elastic" else None
    if kind is None:
        return None
    try:
        said: Said = kind(**parse_json(value))
        for name, wanted in get_type_hints(kind).items():
            _require(name, getattr(said, name), wanted)
        return said
    except (TypeError, ValueError) as error:
        raise ValueError(f"a process said under {key} what makes no sense: {error}") from error


def parse_update(value: bytes) -> Update:
    """Parse an update. Raises ValueError."""
    try:
        update = Update(**parse_json(value))
        for name in ("result", "code"):
            _require(name, getattr(update, name), int)
        return update
    except TypeError as error:
        raise ValueError(f"the driver's update makes no sense: {error}") from error


def _require(name: str, value: object, wanted: Any) -> None:
    """Raise TypeError unless a field has the type of its annotation: int, str, tuple[int, ...]."""
    if wanted == tuple[int, ...]:
        good, kind = isinstance(value, list) and all(type(each) is int for each in value), "ints"
    else:
        good, kind = type(value) is wanted, wanted.__name__
    if not good:
        raise TypeError(f"its {name} is {repr(value)[:40]}, not {kind}")


class Applicant:
    """A process of an elastic job, which asks its driver for places.

    store: the job's. id: the driver's number of this process.
    """

    def __init__(self, store: Store, process_id: int) -> None:
        self._store = store
        self._id = process_id
        self._number = 0
        self.place = Place(-1)

    def ask(self) -> Place:
        """Report that this process is ready for a world, and wait for its place.

        Raises ConnectionError when the driver is gone.
        """
        ready = Ready(self._id, self._number, self.place.epoch, own_identity().version)
        self._number += 1
        self._say(ready)
        self.place = parse_place(self._await(place_key(ready)))
        return self.place

    def await_update(self, epoch: int) -> Update:
        """Wait for an update about hosts of a world. Raises ConnectionError, ValueError."""
        return parse_update(self._await(update_key(epoch)))

    def _await(self, key: str) -> bytes:
        """Wait for a key as long as the driver lives."""
        while True:
            with contextlib.suppress(TimeoutError):
                return self._store.get(key, _DAY_SECONDS)

    def greet(self) -> None:
        """Test the connection to the driver. Raises OSError."""
        self._store.set(f"elastic/alive/{self._id}", b"")

    def report(self, text: str, step: int) -> None:
        """Report the error that ends this process's training function. Raises OSError."""
        self._say(Raised(self._id, text, step))

    def ends(self) -> None:
        """Report that this process ends. Raises OSError."""
        self._say(Ending(self._id))

    def await_giving_up(self) -> None:
        """Report that this process will end, and wait until it is given up. Raises OSError."""
        self._say(Ending(self._id, asks=True))
        self._await(given_up_key(self._id))

    def trains(self, signals: Sequence[int]) -> None:
        """Report the start of the training function, and the signals on which it leaves."""
        self._say(Training(self._id, tuple(signals)))

    def leaves(self, signal: int) -> None:
        """Report that this process received a signal and wants to leave. Raises OSError."""
        self._say(Leaving(self._id, signal))

    def wrote(self, path: str, step: int) -> None:
        """Report the path of a checkpoint. Raises OSError."""
        self._say(Checkpoint(self._id, path, step))

    def _say(self, message: Said) -> None:
        self._store.set(_key_of(message), pack(message))


def placement_of(place: Place, store: str, secret: bytes | None) -> Placement:
    """Convert a place in a world that meets at a store to the placement for `init`."""
    # Here, because only processes of elastic jobs need it.
    from sirtaki.rendezvous.world.placement import Placement

    own = place.topology._asdict()
    return Placement(store=store, secret=secret, epoch=place.epoch, host_id=place.host_id, **own)


def places(members: Sequence[int], hosts: Sequence[str], epoch: int, fresh: int) -> list[Place]:
    """Make the places of a world's members, in the order of their ranks.

    hosts: the host of each. fresh: how many were in no world before.
    """
    membership = Membership.of(epoch, members, hosts)
    return [
        Place(epoch, tuple(members), fresh, membership.topology(rank), hosts[rank])
        for rank in range(len(members))
    ]


def update_now(result: int, code: int = 0) -> Update:
    """Make an update with the current time."""
    return Update(time.monotonic(), result, code)
