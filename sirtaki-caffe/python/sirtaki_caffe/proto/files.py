"""Reading of files with a size limit, and atomic writing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sirtaki_caffe.errors import CaffeError


def read_bytes(path: str | Path, limit: int) -> bytes:
    """Return the contents of a file.

    Raises:
        CaffeError: It cannot be read, or is longer than `limit` bytes.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise CaffeError(f"cannot read {path}: {reason(error)}") from error
    if len(data) > limit:
        raise CaffeError(f"{path} is longer than {limit} bytes, the most that is read")
    return data


@contextlib.contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Yield a path beside a file for writing; it is renamed to the file at the end.

    No partial file remains if writing fails.

    Raises:
        CaffeError: It cannot be written.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(target)
    except (OSError, ValueError) as error:
        raise CaffeError(f"cannot write {path}: {reason(error)}") from error
    finally:
        beside.unlink(missing_ok=True)


def reason(error: Exception) -> str:
    """Return why a file could not be read or written, without its path."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
