"""How the processes of an elastic job and their driver tell each other about worlds.

They do so through the job's store. A process that wants to be in a world says that it is ready and
waits for its place there, which the driver gives to all members of a new world at once.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence

from sirtaki.records import asdict, dataclass, field
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust.auth import own_identity
from sirtaki.rendezvous.world.membership import Membership, Topology
from sirtaki.rendezvous.world.placement import Placement

# Bits of `Update.result`.
REMOVED = 1
ADDED = 2
# All are to leave; with it comes the exit code.
LEAVE = 4
_DAY_SECONDS = 86400.0


@dataclass(frozen=True)
class Ready:
    """A process wants to be in a world.

    id: the driver's number of it. number: how many times it has said so before. epoch: of the world
    that it was in last, -1 for none. version: of Sirtaki.
    """

    id: int
    number: int
    epoch: int
    version: str = ""


@dataclass(frozen=True)
class Place:
    """What a process is told.

    epoch: of the new world; -1: there is no place for this process, and it is to end. members: the
    ids of all members in the order of their ranks. fresh: how many of them come from no world
    before. topology: the place of this process. host_id: tells its host apart. refusal: why there
    is no place for it in any world, "" where it may end well.
    """

    epoch: int
    members: tuple[int, ...] = ()
    fresh: int = 0
    topology: Topology = field(default_factory=Topology)
    host_id: str = ""
    refusal: str = ""

    @property
    def leaves(self) -> bool:
        """Whether the process is to end."""
        return self.epoch < 0


@dataclass(frozen=True)
class Update:
    """Hosts have come or gone, or all are to leave.

    timestamp: `time.time()`. result: the bits REMOVED, ADDED and LEAVE. code: with which those
    that leave exit.
    """

    timestamp: float
    result: int
    code: int = 0


@dataclass(frozen=True)
class Raised:
    """A process ends because its training function raised an error.

    id: of the process. text: the error on one line. step: how many commits its state had made.
    """

    id: int
    text: str
    step: int


@dataclass(frozen=True)
class Training:
    """A process trains, and may leave between two steps.

    signals: the numbers of those on which it does.
    """

    id: int
    signals: tuple[int, ...]


@dataclass(frozen=True)
class Leaving:
    """A process has got a signal and wants to leave."""

    id: int
    signal: int


@dataclass(frozen=True)
class Checkpoint:
    """A process has written a checkpoint. step: which the program gives it."""

    id: int
    path: str
    step: int


Said = Ready | Raised | Training | Leaving | Checkpoint
_SAID = {kind.__name__.lower(): kind for kind in (Ready, Raised, Training, Leaving, Checkpoint)}


def _key_of(message: Said) -> str:
    return f"elastic/{type(message).__name__.lower()}/{message.id}"


def place_key(ready: Ready) -> str:
    """The key under which a process that is ready finds its place."""
    return f"elastic/place/{ready.id}/{ready.number}"


def update_key(epoch: int) -> str:
    """The key under which the members of a world find that hosts have come or gone."""
    return f"elastic/update/{epoch}"


def keys_of_world(epoch: int) -> str:
    """With what the keys begin under which the members of a world meet."""
    return f"world/{epoch}/"


def pack(message: Place | Update | Said) -> bytes:
    """Turn a message into the value of a key."""
    return json.dumps(asdict(message)).encode()


def parse_place(value: bytes) -> Place:
    """Read a place. Raises ValueError."""
    try:
        told = json.loads(value)
        told["members"] = tuple(told["members"])
        told["topology"] = Topology(**told["topology"])
        return Place(**told)
    except (TypeError, KeyError) as error:
        raise ValueError(f"the driver's answer makes no sense: {error!r}") from error


def parse_said(key: str, value: bytes) -> Said | None:
    """Read what a process has left for the driver; None for any other key. Raises ValueError."""
    folder, _, rest = key.partition("/")
    kind = _SAID.get(rest.partition("/")[0]) if folder == "elastic" else None
    if kind is None:
        return None
    try:
        said: Said = kind(**json.loads(value))
        return said
    except TypeError as error:
        raise ValueError(f"a process said under {key} what makes no sense: {error}") from error


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
        """Say that this process is ready for a world, and wait for its place.

        Raises ConnectionError when the driver is gone.
        """
        ready = Ready(self._id, self._number, self.place.epoch, own_identity().version)
        self._number += 1
        self._say(ready)
        self.place = parse_place(self._await(place_key(ready)))
        return self.place

    def await_update(self, epoch: int) -> Update:
        """Wait until hosts come or go while a world lasts. Raises ConnectionError."""
        return Update(**json.loads(self._await(update_key(epoch))))

    def _await(self, key: str) -> bytes:
        """Wait for as long as the driver lives."""
        while True:
            with contextlib.suppress(TimeoutError):
                return self._store.get(key, _DAY_SECONDS)

    def greet(self) -> None:
        """See whether the driver is there. Raises OSError."""
        self._store.set(f"elastic/alive/{self._id}", b"")

    def report(self, text: str, step: int) -> None:
        """Say why the training function of this process ends it. Raises OSError."""
        self._say(Raised(self._id, text, step))

    def trains(self, signals: Sequence[int]) -> None:
        """Say that the training function is called, and which signals make it leave."""
        self._say(Training(self._id, tuple(signals)))

    def leaves(self, signal: int) -> None:
        """Say that this process has got a signal and wants to leave. Raises OSError."""
        self._say(Leaving(self._id, signal))

    def wrote(self, path: str, step: int) -> None:
        """Say where a checkpoint is. Raises OSError."""
        self._say(Checkpoint(self._id, path, step))

    def _say(self, message: Said) -> None:
        self._store.set(_key_of(message), pack(message))


def placement_of(place: Place, store: str, secret: bytes | None) -> Placement:
    """Make what `init` needs of a place in a world that meets at a store."""
    own = place.topology
    return Placement(
        own.rank,
        own.size,
        store,
        secret,
        place.epoch,
        own.local_rank,
        own.local_size,
        own.cross_rank,
        own.cross_size,
        place.host_id,
    )


def places(members: Sequence[int], hosts: Sequence[str], epoch: int, fresh: int) -> list[Place]:
    """Make the places of a world's members, in the order of their ranks.

    hosts: the host of each. fresh: how many come from no world before.
    """
    membership = Membership.of(epoch, members, hosts)
    return [
        Place(epoch, tuple(members), fresh, membership.topology(rank), hosts[rank])
        for rank in range(len(members))
    ]


def update_now(result: int, code: int = 0) -> Update:
    """Make an update of this moment."""
    return Update(time.time(), result, code)
