"""What runs in Dask's workers: a rank is a task in a thread of one."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import sirtaki
from sirtaki.core import placed
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.world import lifecycle
from sirtaki.rendezvous.world.placement import Placement, placements


@dataclass(frozen=True)
class Introduction:
    """Who a worker is.

    Attributes:
        host: The machine's name.
        pid: The number of its process, of which another worker may be a thread.
        version: Of Sirtaki.
    """

    host: str
    pid: int
    version: str


@dataclass(frozen=True)
class Answer:
    """What came of a rank.

    Attributes:
        value: The pickled value that its function returned.
        text: The traceback of what it raised; "" for nothing.
        error: What it raised, pickled; None where that cannot be.
        is_consequence: Whether it only says that another rank has failed.
    """

    value: bytes = b""
    text: str = ""
    error: bytes | None = None
    is_consequence: bool = False


class _Worker:
    """This process."""

    served = ExitStack()
    is_rank = threading.Lock()


def introduce() -> Introduction:
    """Tell who this worker is."""
    return Introduction(socket.gethostname(), os.getpid(), sirtaki.__version__)


def serve(hosts: Sequence[str], interfaces: Sequence[str]) -> list[Placement]:
    """Serve the store where ranks meet, until rank 0, which is here, has ended.

    Args:
        hosts: For each rank the host it is on.
        interfaces: Where to listen; none: everywhere.
    """
    _Worker.served.close()
    context = placements(len(hosts), hosts, interfaces=interfaces)
    return _Worker.served.enter_context(context)


def work(place: Placement, call: bytes) -> Answer:
    """Be a rank: call the pickled function; return what came of it."""
    import cloudpickle

    try:
        with _rank(place):
            function, args, kwargs = cloudpickle.loads(call)
            return Answer(cloudpickle.dumps(placed.call(function, *args, **kwargs)))
    except BaseException as error:
        consequence = isinstance(error, HorovodInternalError)
        return Answer(b"", traceback.format_exc(), _pickled(error), consequence)


@contextmanager
def _rank(place: Placement) -> Iterator[None]:
    """Make this process a rank for a while."""
    if not _Worker.is_rank.acquire(blocking=False):
        raise RuntimeError("this worker is a rank already, of another run that has not ended")
    before = dict(os.environ)
    try:
        placed.take(place, socket.gethostname())
        yield
    finally:
        lifecycle.shutdown()
        lifecycle.assign(None)
        if place.rank == 0:
            # Its thread would keep the process from ending with its worker.
            _Worker.served.close()
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        _Worker.is_rank.release()


def _pickled(error: BaseException) -> bytes | None:
    import cloudpickle

    try:
        data = bytes(cloudpickle.dumps(error))
        # Some exceptions can be written but not read again.
        cloudpickle.loads(data)
    except Exception:
        return None
    return data
