"""Processes of jobs as other programs of their user find them on a host: records in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sirtaki.records import asdict, dataclass

RUNTIME_DIR = "SIRTAKI_RUNTIME_DIR"
_PRIVATE = 0o700
_RECORD = "record.json"
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True)
class Record:
    """What a rank says of itself.

    job: the same for all ranks of a world. hostnames: of each rank's host. started: seconds since
    1970. stacks: the file into which the process writes its Python stacks when it gets `signal`,
    "" where it does not. namespace: that in which `pid` is its number.
    """

    job: str
    rank: int
    pid: int
    command: list[str]
    hostnames: list[str]
    started: float
    stacks: str = ""
    signal: int = 0
    namespace: int = 0


@dataclass(frozen=True)
class Presence:
    """A record, and the folder that it lies in beside the socket that answers questions."""

    folder: Path
    record: Record

    @property
    def socket(self) -> str:
        """The path of the socket."""
        return str(self.folder / "socket")

    @property
    def alive(self) -> bool:
        """Whether the process still listens, in whatever container it runs, or stopped."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(_PATIENCE_SECONDS)
            try:
                link.connect(self.socket)
            except (TimeoutError, BlockingIOError):
                return True
            except OSError:
                return False
        return True

    def announce(self) -> None:
        """Let others find it, once something listens there: what does not is swept away."""
        (self.folder / "new").write_text(json.dumps(asdict(self.record)))
        (self.folder / "new").rename(self.folder / _RECORD)

    def remove(self) -> None:
        """Forget the record and what lies beside it."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()


def job_name(store: str) -> str:
    """Return a short name for the job whose ranks meet at a store, "" if there is only one."""
    text = store or f"alone {os.getpid()} {time.time()}"
    return f"{zlib.crc32(text.encode()):08x}"


def own_namespace() -> int:
    """Return the number of the namespace in which this process's number is its own."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def prepare(record: Record) -> Presence:
    """Make a folder for a record of this process, for its user alone; nobody finds it so far.

    Raises:
        OSError: There is no folder for it that is this user's alone.
    """
    # Containers that share the folder have processes with equal numbers.
    folder = own_folder() / f"{record.pid}.{os.urandom(4).hex()}"
    folder.mkdir(_PRIVATE)
    return Presence(folder, record)


def sweep() -> None:
    """Forget the records of processes that have ended without doing so themselves."""
    for presence in present():
        if not presence.alive:
            presence.remove()


def present() -> Iterator[Presence]:
    """Yield the records of this user on this host, also those of processes that have ended."""
    for folder in _candidates():
        if not _is_private(folder):
            continue
        for path in sorted(folder.glob(f"*/{_RECORD}")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                fields: dict[str, Any] = json.loads(path.read_text())
                yield Presence(path.parent, Record(**fields))


def own_folder() -> Path:
    """Return the first folder that is there, or can be made, and is this user's alone.

    Raises:
        OSError: There is none.
    """
    for folder in _candidates():
        with contextlib.suppress(OSError):
            folder.mkdir(_PRIVATE)
        if _is_private(folder):
            return folder
    raise PermissionError(f"{folder} belongs to somebody else, or others may enter it")


def _candidates() -> list[Path]:
    """The runtime folder of a login goes when its user logs out, while jobs stay; so it is last."""
    if chosen := os.environ.get(RUNTIME_DIR):
        return [Path(chosen)]
    user = os.geteuid()
    return [Path(f"/tmp/sirtaki-{user}"), Path(f"/run/user/{user}/sirtaki")]


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )
