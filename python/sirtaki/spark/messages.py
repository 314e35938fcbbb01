"""The messages between driver, tasks and ranks."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import IO

from sirtaki.rendezvous.world.placement import Placement

# Keys in the driver's store; each is followed by "/" and a number.
STARTED = "spark/started"
FAILED = "spark/failed"
OUTPUT = "spark/output"
# A task's rank and host, as a list.
PLACED = "spark/placed"
# Set when the job is over, to end everything that still runs.
OVER = "spark/over"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Call:
    """The data passed to each task.

    Attributes:
        function: The pickled function with its arguments.
        places: A placement for each rank; its holder can join.
        version: The driver's Python version; functions cannot be sent between versions.
        path: The driver's import path.
        executable: The Python of the ranks; "": that of Spark's workers.
        variables: The environment of the ranks in place of the executor's; None for the executor's.
    """

    function: bytes
    places: list[Placement]
    version: tuple[int, int]
    path: list[str]
    executable: str
    variables: dict[str, str] | None


@dataclass(frozen=True)
class Failed:
    """The failure of a rank.

    Attributes:
        rank: The rank.
        host: Its host.
        text: The traceback, or any other information.
        error: The pickled exception; None without a picklable one.
        is_consequence: Whether it only results from another rank's failure.
    """

    rank: int
    host: str
    text: str
    error: bytes | None = None
    is_consequence: bool = False


def write_part(stream: IO[bytes], data: bytes) -> None:
    """Write bytes with their length."""
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_part(stream: IO[bytes]) -> bytes:
    """Read the bytes of `write_part`; return b"" at the end."""
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
