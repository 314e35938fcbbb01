"""The private folder through which the launcher and the tasks of a scheduler's job hear each other.

It lies on a file system that all hosts of the job share, and only the user may enter it. It holds
what to run, the job's secret, and a log to which every task appends what becomes of its rank.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sirtaki.rendezvous.files.private_folder import make_private_folder

JOB = "job.json"
SECRET = "secret"
HOSTS = "hosts"
LOG = "log"

# What file systems without locks answer. Those we know of need none: they are never stale.
_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL))
# Longer than a scheduler suspends a job, or a user leaves its launcher stopped.
_LEFTOVER_SECONDS = 7 * 24 * 3600.0
_TAKEN = frozenset((errno.EACCES, errno.EAGAIN))
# To read without the lock is safe, as half a line is not read. To write without it is the last
# resort: where many add a line at the same time they have to wait for each other.
_READ_LOCK_SECONDS = 1.0
_WRITE_LOCK_SECONDS = 10.0
_LOCK_RETRY_SECONDS = 0.02


@dataclass(frozen=True)
class Record:
    """A line of the log.

    event: "started", "exited" (code is the exit code, or minus the signal's number), "failed" (the
    rank cannot start or go on: text says why, code is the launcher's exit code), "raised" (behind
    "exited": text is the rank's last traceback, its lines and those behind it, as JSON), all of a
    rank and its host; or the launcher's "end", which asks every task to end with the signal
    `code`, "signal", which is for the ranks (`code` too), "pause", after which its silence means
    nothing, and "resume". asked: the rank was already being ended. step: the
    scheduler's name for the tasks started together, where it has one.
    """

    event: str
    rank: int = -1
    host: str = ""
    code: int = 0
    asked: bool = False
    step: str = ""
    text: str = ""


class Log:
    """The log in a folder, written and read under a lock where that can be had.

    The lock is what makes a network file system show what other hosts have written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._read_bytes = 0

    def append(self, record: Record) -> None:
        """Add a line. Raises OSError."""
        line = json.dumps(asdict(record)) + "\n"
        with (
            self._path.open("ab", buffering=0) as file,
            _locked(file.fileno(), fcntl.LOCK_EX, _WRITE_LOCK_SECONDS),
        ):
            file.write(line.encode())

    def touch(self) -> None:
        """Set the time of the file to now. Raises OSError."""
        os.utime(self._path)

    def read(self) -> tuple[list[Record], float]:
        """Return what is new since the last time, and the file's time. Raises OSError."""
        with (
            self._path.open("rb") as file,
            _locked(file.fileno(), fcntl.LOCK_SH, _READ_LOCK_SECONDS),
        ):
            file.seek(self._read_bytes)
            data = file.read()
            changed = os.fstat(file.fileno()).st_mtime
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [Record(**json.loads(line)) for line in whole.splitlines()], changed


@contextlib.contextmanager
def _locked(descriptor: int, kind: int, seconds: float) -> Iterator[None]:
    """Hold a lock if it can be had within some seconds, and go on without it if not.

    A lock that a stopped process holds, or a lock service that is gone, must make nobody deaf.
    """
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno in _NO_LOCKS or time.monotonic() > give_up_at:
                break
            if error.errno not in _TAKEN:
                raise
        time.sleep(_LOCK_RETRY_SECONDS)
    # Closing the file unlocks it, and that is what every caller does next.
    yield


def shared_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory for folders of jobs, on a file system that all hosts share."""
    chosen = environ.get("SIRTAKI_SHARED_DIR")
    return Path(chosen) if chosen else Path.home() / ".sirtaki" / "jobs"


def create_folder(parent: Path, job: str) -> Path:
    """Create a folder of our own, mode 0700, below `parent`. Raises OSError."""
    make_private_folder(parent)
    name = "".join(character if character.isalnum() else "-" for character in job)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
    write_private(folder / LOG, b"")
    return folder


def write_private(path: Path, data: bytes) -> None:
    """Create the file, mode 0600, which must not exist yet. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def remove_folder(folder: Path) -> None:
    """Remove the folder with all in it, as far as that is possible."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(parent: Path, now: float) -> None:
    """Remove what launchers that were killed have left in `parent`, as far as that is possible.

    now: by the clock of the file system. Only folders of our own in which a launcher has put a job,
    and whose log, which a living launcher touches all the time, has long been left alone.
    """
    with contextlib.suppress(OSError):
        for folder in list(parent.iterdir()):
            with contextlib.suppress(OSError):
                if _is_leftover(folder, now):
                    remove_folder(folder)


def _is_leftover(folder: Path, now: float) -> bool:
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not private or found.st_uid != os.geteuid():
        return False
    (folder / JOB).lstat()
    return now - (folder / LOG).lstat().st_mtime > _LEFTOVER_SECONDS


def read_job(folder: Path) -> dict[str, Any]:
    """Return what to run. Raises OSError, PermissionError when the folder is another user's."""
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, "the folder is another user's", str(folder))
    job: dict[str, Any] = json.loads((folder / JOB).read_bytes())
    return job
