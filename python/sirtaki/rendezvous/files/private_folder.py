"""Folders that only this user may enter, and files written to them safely."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700, regardless of the umask."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)


def in_home(path: str, cure: str) -> Path:
    """Return a path with "~" expanded. ValueError, with the cure: the user has no home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(
            f"there is no home for {path}: HOME is not set, and user {os.geteuid()} has no entry "
            f"in /etc/passwd; set HOME, or {cure}"
        ) from None


def private_folder_in(root: Path, name: str) -> Path:
    """Return a private folder within a folder that others may write too.

    It is called `name`, or has that prefix if another user has taken the name. Raises OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = root / name
    make_private_folder(folder)
    try:
        with opened(folder):
            return folder
    except OSError:
        import tempfile  # hardly ever needed

        return Path(tempfile.mkdtemp(prefix=f"{name}.", dir=root))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder by descriptor, so that a change of its path has no effect on its use.

    Raises PermissionError when it is not private to this user, OSError.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        require_private(os.fstat(descriptor), f"the folder {folder}")
        yield descriptor
    finally:
        os.close(descriptor)


def is_private(status: os.stat_result) -> bool:
    """Return whether a file or folder is private to this user."""
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def require_private(status: os.stat_result, what: str) -> None:
    """Raise PermissionError unless a file or folder is private to this user."""
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{what} belongs to user {status.st_uid}, not to us")
    if not is_private(status):
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionError(f"{what} has mode {mode:04o}: others may use it, so we do not")


def write_whole(folder: int, name: str, data: bytes, durable: bool = False) -> None:
    """Write a file in an open folder atomically. Raises OSError.

    durable: wait until the disk has it.
    """
    temporary = f".{os.urandom(8).hex()}"
    file = os.open(temporary, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            if durable:
                os.fsync(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
