"""What driver, tasks and ranks tell one another."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import IO, Any

from sirtaki.rendezvous.world.placement import Placement

# In the store that the driver serves; each is followed by "/" and a number.
STARTED = "spark/started"
FAILED = "spark/failed"
OUTPUT = "spark/output"
# A task's rank and host, as a list.
PLACED = "spark/placed"
# Set when the job is over: what still runs is to end.
OVER = "spark/over"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Call:
    """What each task is handed.

    Attributes:
        function: The pickled function with its arguments.
        places: A placement for each rank; whoever has one can join.
        version: Of the driver's Python, as functions do not travel between versions.
        path: The driver's import path.
        executable: The Python of the ranks; "": that of Spark's workers.
        variables: The environment of the ranks in place of the executor's; None for the latter.
    """

    function: bytes
    places: list[Placement]
    version: tuple[int, int]
    path: list[str]
    executable: str
    variables: dict[str, str] | None


@dataclass(frozen=True)
class Failed:
    """How a rank has failed."""

    rank: int
    host: str
    text: str
    error: bytes | None


def write_part(stream: IO[bytes], data: bytes) -> None:
    """Write bytes with their length."""
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_part(stream: IO[bytes]) -> bytes:
    """Read what `write_part` has written; b"" at the end."""
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""


def pickled(value: Any) -> bytes:
    """Pickle anything, functions of scripts and notebooks too."""
    import cloudpickle

    return bytes(cloudpickle.dumps(value))
