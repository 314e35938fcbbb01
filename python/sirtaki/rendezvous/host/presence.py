"""Records by which a user's programs find the processes of jobs, and the kernel's of a process."""

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
from typing import Any, NamedTuple

from sirtaki.rendezvous.files.private_folder import is_private
from sirtaki.rendezvous.host.control_groups import text_of
from sirtaki.rendezvous.words import parse_json

RUNTIME_DIR = "SIRTAKI_RUNTIME_DIR"
_PRIVATE = 0o700
_RECORD = "record.json"
_PATIENCE_SECONDS = 1.0


class Record(NamedTuple):
    """A rank's record of itself.

    job: the same for all ranks of a world. hostnames: of each rank's host. started: seconds since
    1970. stacks: the file into which the process writes its Python stacks on `signal`, and only the
    main thread's on `main_signal`; "" if it does not. namespace: the PID namespace of `pid`. id:
    the starter's number of the process, -1 if it has none. boot: of the machine, see `own_boot`.
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
    id: int = -1
    main_signal: int = 0
    boot: str = ""


class Presence(NamedTuple):
    """A record, and the folder that contains it and the socket for questions."""

    folder: Path
    record: Record

    @property
    def socket(self) -> str:
        """The path of the socket."""
        return str(self.folder / "socket")

    @property
    def alive(self) -> bool:
        """Whether the process still listens, even if it is stopped or in another container."""
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
        """Publish the record once its socket listens, as `sweep` removes those without."""
        (self.folder / "new").write_text(json.dumps(self.record._asdict()))
        (self.folder / "new").rename(self.folder / _RECORD)

    def remove(self) -> None:
        """Remove the record and its folder."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()


def job_name(store: str) -> str:
    """Return a short name for the job whose ranks meet at a store, "" if there is only one."""
    text = store or f"alone {os.getpid()} {time.time()}"
    return f"{zlib.crc32(text.encode()):08x}"


def own_namespace() -> int:
    """Return the number of this process's PID namespace."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def own_boot() -> str:
    """Return what this machine calls the time since it was started, "" if unknown.

    Containers of a machine have the same; two machines that share a folder have not.
    """
    return text_of(Path("/proc/sys/kernel/random/boot_id"))


def prepare(record: Record) -> Presence:
    """Make a private folder for a record of this process, not published yet.

    Raises:
        OSError: No folder private to this user is available.
    """
    # Containers that share the folder may have processes with equal ids.
    folder = own_folder() / f"{record.pid}.{os.urandom(4).hex()}"
    folder.mkdir(_PRIVATE)
    return Presence(folder, record)


def sweep() -> None:
    """Remove the records of processes that ended without removing them."""
    for presence in present():
        if not presence.alive:
            presence.remove()


def present() -> Iterator[Presence]:
    """Yield this user's records on this host, including those of ended processes."""
    boot = own_boot()
    for folder in _candidates():
        if not _is_private_folder(folder):
            continue
        for path in sorted(folder.glob(f"*/{_RECORD}")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                record = _record(parse_json(path.read_text()))
                if record.boot in ("", boot):  # not of another machine that shares the folder
                    yield Presence(path.parent, record)


def _record(fields: Any) -> Record:
    """Parse a record. Raises ValueError, TypeError: another version wrote it."""
    record = Record(**{name: fields[name] for name in Record._fields if name in fields})
    lists = (record.command, record.hostnames)
    numbers = (record.rank, record.pid, record.signal, record.main_signal, record.id)
    good = all(type(each) is int for each in numbers)
    good = good and all(type(each) is str for each in (record.job, record.stacks, record.boot))
    good = good and isinstance(record.started, (int, float))
    good = good and all(type(one) is list and all(type(e) is str for e in one) for one in lists)
    if not good or not 0 <= record.rank < len(record.hostnames):
        raise ValueError("it has a field of another kind")
    return record


def other_process(job: str, number: int) -> Record | None:
    """Return another process of this host with this number in a job's world."""
    here = (os.getpid(), own_namespace())
    for presence in present():
        found = presence.record
        same = (found.job, found.id) == (job, number) and (found.pid, found.namespace) != here
        if same and presence.alive:
            return found
    return None


def own_folder() -> Path:
    """Return the first folder that exists or can be made, and is private to this user.

    Raises:
        OSError: There is none.
    """
    why = ""
    for folder in _candidates():
        try:
            folder.mkdir(_PRIVATE)
        except FileExistsError:
            pass
        except OSError as error:
            why = why or f"{folder} cannot be made: {error.strerror}"
        if _is_private_folder(folder):
            return folder
    why = _distrust() or why
    raise PermissionError(f"{why}; set {RUNTIME_DIR} to a folder that is yours alone (mode 700)")


def require_trusted() -> None:
    """Raise PermissionError if processes here have no folder for their records."""
    if (why := _distrust()) and not any(map(_is_private_folder, _candidates())):
        raise PermissionError(why)


def _distrust() -> str:
    """Return which existing folder cannot be used, and why; "" for none."""
    for folder in _candidates():
        if os.path.lexists(folder) and not _is_private_folder(folder):
            return f"{folder} belongs to somebody else, or others may enter it"
    return ""


def _candidates() -> list[Path]:
    """Return possible folders; a login's runtime folder is last, as it is removed at logout."""
    if chosen := os.environ.get(RUNTIME_DIR):
        return [Path(chosen)]
    user = os.geteuid()
    return [Path(f"/tmp/sirtaki-{user}"), Path(f"/run/user/{user}/sirtaki")]


def _is_private_folder(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and is_private(found)


class Stat(NamedTuple):
    """Fields of `/proc/PID/stat`.

    Attributes:
        state: The letter of the process's state; "": it is gone.
        parent: The process id of its parent.
        cpu_seconds: The processor time that it has used.
        started: When it was started, in the kernel's ticks.
    """

    state: str = ""
    parent: int = 0
    cpu_seconds: float = 0.0
    started: str = ""


def stat_of(pid: int | str) -> Stat:
    """Return the kernel's fields of a process."""
    try:
        # Without importing pathlib. The command in parentheses may contain any character.
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].decode().split()
        ticks = int(fields[11]) + int(fields[12])
        return Stat(fields[0], int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"), fields[19])
    except (OSError, ValueError, IndexError):
        return Stat()
