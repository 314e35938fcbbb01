"""Folders that nobody else may enter."""

from __future__ import annotations

import contextlib
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, with mode 0700 whatever the umask says."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)
