"""Pickling of functions, results and errors for other processes, by cloudpickle.

Functions of scripts and notebooks include their source, so that tracebacks of ranks show lines, and
AutoGraph finds the source that it translates. Values that another process may be unable to read,
such as an error of a class that it lacks, are pickled separately.
"""

from __future__ import annotations

import io
import linecache
import pickle
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any

# Longer files are likely data, not programs.
_MOST_CHARACTERS = 1 << 20


def dumps(value: Any) -> bytes:
    """Pickle any object; `pickle.loads` reads it wherever Sirtaki is installed.

    Raises:
        Exception: It cannot be pickled; the class varies.
    """
    data, files = _pickled(value)
    found = sources(files)
    return pickle.dumps(_Sourced(found, data)) if found else data


def _pickled(value: Any) -> tuple[bytes, set[str]]:
    """Pickle a value; also return the source files of its code."""
    import cloudpickle

    files: set[str] = set()

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, CodeType):
                return super().reducer_override(obj)
            files.add(obj.co_filename)
            # Since 3.1.3 it sets the file of all code to <dynamic-code>.
            make, parts = self.dispatch_table[CodeType](obj)
            return _code, (obj.co_filename, make, parts)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue(), files


def _code(file: str, make: Callable[..., CodeType], parts: tuple[Any, ...]) -> CodeType:
    return make(*parts).replace(co_filename=file)


class _Sourced:
    """Pickled data with its source; unpickles to the value itself."""

    def __init__(self, found: Mapping[str, str], data: bytes) -> None:
        self._parts = dict(found), data

    def __reduce__(self) -> Any:
        return _read, self._parts


def _read(found: Mapping[str, str], data: bytes) -> Any:
    remember(found)
    return pickle.loads(data)


def sources(files: Iterable[str]) -> dict[str, str]:
    """Return the source of files, or of notebook cells by name, where known."""
    found = {name: "".join(linecache.getlines(name)) for name in sorted(files)}
    return {name: code for name, code in found.items() if 0 < len(code) <= _MOST_CHARACTERS}


def remember(found: Mapping[str, str]) -> None:
    """Let tracebacks of this process, and `inspect`, show lines of this code.

    Args:
        found: Source by the file name that its code was compiled with.
    """
    for name, code in found.items():
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


def error_bytes(error: BaseException) -> bytes | None:
    """Return a pickled error, or None if it cannot be pickled or read back."""
    try:
        data = dumps(error)
        # Some exceptions can be pickled but not read back.
        pickle.loads(data)
    except Exception:
        return None
    return data


def error_of(data: bytes | None) -> BaseException | None:
    """Return the error of `error_bytes`, or None if this process cannot read it.

    It may lack the error's class. The error's text is sent beside it.
    """
    try:
        found = None if data is None else pickle.loads(data)
    except Exception:
        return None
    return found if isinstance(found, BaseException) else None


def value_of(data: bytes, rank: int) -> Any:
    """Return the return value of a rank.

    Raises:
        RuntimeError: This process cannot read it; the message names the rank.
    """
    try:
        return pickle.loads(data)
    except Exception as error:
        raise RuntimeError(
            f"what rank {rank} returned cannot be read here ({type(error).__name__}: {error}): "
            "install here what the ranks have, or return plain numbers, texts or arrays"
        ) from error
