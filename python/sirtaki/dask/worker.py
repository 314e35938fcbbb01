"""The code that runs in Dask's workers, where a rank is a task in a thread."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import sirtaki
from sirtaki import shipped
from sirtaki.core import placed
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.world import lifecycle
from sirtaki.rendezvous.world.placement import Placement, placements


@dataclass(frozen=True)
class Introduction:
    """The identity of a worker.

    Attributes:
        host: The machine's name.
        pid: The number of its process, which another worker may share.
        version: The version of Sirtaki.
    """

    host: str
    pid: int
    version: str


@dataclass(frozen=True)
class Answer:
    """The outcome of a rank.

    Attributes:
        value: The pickled return value of its function.
        text: The traceback of its error; "" without one.
        error: Its pickled error; None if it cannot be pickled.
        is_consequence: Whether it only results from another rank's failure.
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
    """Return the identity of this worker."""
    return Introduction(socket.gethostname(), os.getpid(), sirtaki.__version__)


def serve(hosts: Sequence[str], interfaces: Sequence[str]) -> list[Placement]:
    """Serve the store where ranks meet, until rank 0, which runs here, has ended.

    Args:
        hosts: The host of each rank.
        interfaces: The interfaces to listen on; empty for all.
    """
    _Worker.served.close()
    context = placements(len(hosts), hosts, interfaces=interfaces)
    return _Worker.served.enter_context(context)


def work(place: Placement, call: bytes) -> Answer:
    """Run as a rank: call the pickled function; return its outcome."""
    try:
        with _rank(place):
            function, args, kwargs = pickle.loads(call)
            return Answer(shipped.dumps(placed.call(function, *args, **kwargs)))
    except BaseException as error:
        consequence = isinstance(error, HorovodInternalError)
        return Answer(b"", traceback.format_exc(), shipped.error_bytes(error), consequence)


@contextmanager
def _rank(place: Placement) -> Iterator[None]:
    """Make this process a rank for the duration of the context."""
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
