"""The private folder from which the agents of a scheduler's job read how to reach the launcher.

It is on a file system that all hosts of the job share, and only the user may enter it. It holds
the launcher's address and the job's secret until all agents have connected.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sirtaki.launch.errors import reported
from sirtaki.rendezvous.files.private_folder import in_home, is_private, make_private_folder

JOB = "job.json"
SECRET = "secret"
HOSTS = "hosts"

# Longer than a launcher is stopped, or a job suspended, before all agents have connected.
_LEFTOVER_SECONDS = 7 * 24 * 3600.0


def shared_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory for folders of jobs, on a file system that all hosts share.

    Raises LaunchError.
    """
    chosen = environ.get("SIRTAKI_SHARED_DIR")
    with reported():
        return Path(chosen) if chosen else in_home("~/.sirtaki/jobs", "SIRTAKI_SHARED_DIR")


def create_folder(parent: Path, job: str) -> Path:
    """Create a folder of our own, mode 0700, below `parent`. Raises OSError."""
    make_private_folder(parent)
    name = "".join(character if character.isalnum() else "-" for character in job)
    return Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))


def write_private(path: Path, data: bytes) -> None:
    """Create the file, mode 0600, which must not exist yet. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def remove_folder(folder: Path) -> None:
    """Remove the folder and its content, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(parent: Path, now: float) -> None:
    """Remove the folders that killed launchers left in `parent`, as far as possible.

    Removes only this user's folders into which a launcher put a job long ago. now: by the clock of
    the file system.
    """
    with contextlib.suppress(OSError):
        for folder in list(parent.iterdir()):
            with contextlib.suppress(OSError):
                if _is_leftover(folder, now):
                    remove_folder(folder)


def _is_leftover(folder: Path, now: float) -> bool:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not is_private(found):
        return False
    return now - (folder / JOB).lstat().st_mtime > _LEFTOVER_SECONDS


def read_job(folder: Path) -> dict[str, Any]:
    """Return what the launcher wrote. Raises OSError, also for another user's folder."""
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, "the folder is another user's", str(folder))
    job: dict[str, Any] = json.loads((folder / JOB).read_bytes())
    return job
