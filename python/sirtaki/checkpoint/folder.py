"""The folder of a job's checkpoints: each is a folder in it, there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirtaki.checkpoint.errors import CheckpointError

_NAME = re.compile(r"step-(\d{12})(?:\.(\d+))?")
_CONTENT = "checkpoint.json"
_FORMAT = 1
_SHARD_SECONDS = 600.0
_LOOK_SECONDS = 0.05
# An unfinished folder of this age is of a job that has ended.
_STALE_SECONDS = 3600.0


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: Its folder.
        step: The step after which it was saved.
    """

    path: str
    step: int

    def __fspath__(self) -> str:
        """Return `path`, so that it can stand where a path is wanted."""
        return self.path


def unfinished(parent: Path, step: int) -> Path:
    """Make a folder in which a checkpoint is written before it gets its name."""
    if not 0 <= step < 10**12:
        raise CheckpointError(f"step={step} must be a whole number from 0 to 999999999999")
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(".step-*"):
        if time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    folder = parent / f".step-{step:012}-{os.urandom(4).hex()}"
    folder.mkdir()
    return folder


def write_arrays(folder: Path, number: int, parts: Sequence[tuple[int, Any]]) -> None:
    """Write a file of arrays, and beside it its digest when it is whole."""
    digest, end = hashlib.sha256(), 0
    with (folder / _arrays(number)).open("wb") as file:
        for begin, data in parts:
            for piece in (bytes(begin - end), memoryview(data).cast("B")):
                file.write(piece)
                digest.update(piece)
            end = begin + len(data)
        _sync(file.fileno())
    part = folder / f"{_digest(number)}.part"
    part.write_text(digest.hexdigest())
    part.rename(folder / _digest(number))


def finish(
    folder: Path, step: int, content: dict[str, Any], sizes: Sequence[int], keep: int
) -> Path:
    """Give a checkpoint its name when all its files are there; remove the oldest beyond `keep`.

    Returns:
        Where it is then.
    """
    parent = folder.parent
    digests = [_await_digest(folder, number) for number in range(len(sizes))]
    files = [[_arrays(n), sizes[n], digests[n]] for n in range(len(sizes))]
    text = json.dumps({"format": _FORMAT, "step": step, "files": files, **content})
    whole = {"content": text, "digest": hashlib.sha256(text.encode()).hexdigest()}
    with (folder / _CONTENT).open("w") as file:
        json.dump(whole, file)
        file.flush()
        _sync(file.fileno())
    for number in range(len(sizes)):
        (folder / _digest(number)).unlink()
    _sync_folder(folder)
    # One of the same step stays until this one has its name.
    final = folder.rename(parent / _free_name(parent, step))
    _sync_folder(parent)
    named = _named(parent)
    # The first of a step in this order is its newest.
    newest_of = {each: path for path, each in reversed(named)}
    kept = set(list(newest_of.values())[-keep:])
    for path, _ in named:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)
    return final


def _free_name(parent: Path, step: int) -> str:
    matches = [_NAME.fullmatch(path.name) for path, found in _named(parent) if found == step]
    used = [int(match[2] or 0) for match in matches if match]
    return f"step-{step:012}.{max(used) + 1}" if used else f"step-{step:012}"


def _await_digest(folder: Path, number: int) -> str:
    path, deadline = folder / _digest(number), time.monotonic() + _SHARD_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"rank {number} has not written its part of {folder} within {_SHARD_SECONDS:g} s; "
                "with sharded=True all hosts need the same file system there"
            )
        time.sleep(_LOOK_SECONDS)
    return path.read_text()


def _arrays(number: int) -> str:
    return f"arrays-{number}.bin"


def _digest(number: int) -> str:
    return f"arrays-{number}.sha256"


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named(parent: Path) -> list[tuple[Path, int]]:
    """The checkpoints of a folder by name, the newest first."""
    if not parent.is_dir():
        return []
    found = [(path, _NAME.fullmatch(path.name)) for path in parent.iterdir()]
    ordered = sorted((-int(m[1]), -int(m[2] or 0), p) for p, m in found if m)
    return [(path, -step) for step, _, path in ordered]


def newest(parent: Path) -> Checkpoint | None:
    """Return the newest checkpoint whose files are whole by their sizes; warn of others."""
    for path, step in _named(parent):
        try:
            read_content(path)
            return Checkpoint(str(path), step)
        except CheckpointError as error:
            warnings.warn(f"{error}; looking for an older one", stacklevel=3)
    return None


def resolved(path: Path) -> Path:
    """Return a checkpoint's folder: the path itself, or the newest in it.

    Raises:
        CheckpointError: There is none.
    """
    if (path / _CONTENT).exists() or _NAME.fullmatch(path.name):
        return path
    found = newest(path)
    if found is None:
        raise CheckpointError(f"there is no checkpoint in {path}")
    return Path(found.path)


def read_content(folder: Path) -> dict[str, Any]:
    """Return what `finish` was given.

    Raises:
        CheckpointError: It is not there, or not whole.
    """
    path = folder / _CONTENT
    try:
        whole = json.loads(path.read_text())
        text = whole["content"]
        if hashlib.sha256(text.encode()).hexdigest() != whole["digest"]:
            raise CheckpointError(f"{path} is damaged: {_cure(folder)}")
        content: dict[str, Any] = json.loads(text)
        files = [(folder / name, size) for name, size, _ in content["files"]]
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} is no checkpoint of Sirtaki: it has no {_CONTENT}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged ({error!r}): {_cure(folder)}") from None
    if content["format"] != _FORMAT:
        raise CheckpointError(
            f"{folder} has format {content['format']}, this version of Sirtaki reads {_FORMAT}: "
            "load it with the version that wrote it"
        )
    for file, size in files:
        if not file.is_file() or file.stat().st_size != size:
            raise CheckpointError(
                f"{file} is damaged: it should have {size} bytes; {_cure(folder)}"
            )
    return content


def _cure(folder: Path) -> str:
    return f"remove {folder}, and an older checkpoint is found"


class Files:
    """The files of a checkpoint, read as whole files and checked once.

    Args:
        folder: Of the checkpoint.
        files: Name, size and digest of each.
    """

    def __init__(self, folder: Path, files: Sequence[Sequence[Any]]) -> None:
        self._folder = folder
        self._files = files
        self._loaded: dict[int, bytes] = {}

    def read(self, number: int, begin: int, length: int) -> bytearray:
        """Return bytes of a file.

        Raises:
            CheckpointError: The file is not what was written.
        """
        if number not in self._loaded:
            name, _, digest = self._files[number]
            data = (self._folder / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != digest:
                path = self._folder / name
                raise CheckpointError(
                    f"{path} is damaged: its digest differs; {_cure(self._folder)}"
                )
            self._loaded[number] = data
        found = self._loaded[number][begin : begin + length]
        if len(found) != length:
            raise ValueError(f"an array ends behind file {number}")
        return bytearray(found)
