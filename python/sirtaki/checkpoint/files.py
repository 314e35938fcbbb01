"""Checkpoints on disk: one folder for each, with one file per part, either complete or absent.

A file is NumPy's `.npz`: `meta` is JSON, the other members are the arrays' bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki.checkpoint.framework import Array
from sirtaki.core.errors import CheckpointError

FORMAT = 1
_DAMAGES = (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
_FOLDER = re.compile(r"step-(\d{10,})-[0-9a-f]{8}")
_PART = re.compile(r"part-(\d{5})-of-(\d{5})\.npz")


def folder_of(root: Path, step: int, token: str) -> Path:
    """Return the folder of a checkpoint; `token` distinguishes attempts at the same step."""
    return root / f"step-{step:010d}-{token}"


def write_part(
    folder: Path, part: int, parts: int, meta: Mapping[str, Any], arrays: Mapping[int, Array]
) -> None:
    """Write a file beside its destination, and rename it once it is on disk.

    Raises:
        OSError: It cannot be written; no partial file remains.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {index: (a.kind, a.dtype, a.shape) for index, a in arrays.items()}
    text = json.dumps({**meta, "format": FORMAT, "arrays": described})
    content = {str(index): array.data for index, array in arrays.items()}
    content["meta"] = np.frombuffer(text.encode(), np.uint8)
    final = folder / f"part-{part:05d}-of-{parts:05d}.npz"
    new = folder / f"{final.name}.new"
    try:
        new.unlink(missing_ok=True)
        with new.open("xb") as file:  # never follows another user's link
            np.savez(file, **content)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        new.replace(final)
        for each in (folder, folder.parent):
            _sync(each)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_part(file: Path) -> tuple[dict[str, Any], dict[int, Array]]:
    """Return the values passed to `write_part`.

    Raises:
        CheckpointError: The file is damaged, or not a checkpoint.
    """
    try:
        with np.load(file, allow_pickle=False) as content:
            meta = json.loads(content["meta"].tobytes())
            if meta["format"] != FORMAT:
                raise CheckpointError(
                    f"{file} has format {meta['format']}, this version reads {FORMAT}: use the "
                    "version of Sirtaki that wrote it"
                )
            described = meta.pop("arrays")
            arrays = {
                int(index): Array(kind, dtype, tuple(shape), content[index])
                for index, (kind, dtype, shape) in described.items()
            }
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{file} is not there on this host: give a folder that all ranks share"
        ) from error
    except _DAMAGES as error:
        raise CheckpointError(
            f"{file} is damaged, or no checkpoint of Sirtaki's ({error}): move {file.parent} away, "
            "and the checkpoint before it is loaded"
        ) from error
    return meta, arrays


def parts_of(folder: Path) -> list[Path]:
    """Return the files of a complete checkpoint.

    Raises:
        CheckpointError: Some are missing or truncated.
    """
    try:
        names = {match.groups(): file for file in folder.iterdir() if (match := _match(file))}
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is incomplete: a job has just removed it") from None
    counts = {int(count) for _, count in names}
    if len(counts) != 1:
        raise CheckpointError(f"{folder} is incomplete: no part of it was written to the end")
    count = counts.pop()
    missing = [i for i in range(count) if (f"{i:05d}", f"{count:05d}") not in names]
    if missing:
        raise CheckpointError(f"{folder} is incomplete: part {missing[0]} of {count} is missing")
    files = [names[f"{i:05d}", f"{count:05d}"] for i in range(count)]
    for file in files:
        if not zipfile.is_zipfile(file):
            raise CheckpointError(
                f"{file} is damaged, or no checkpoint of Sirtaki's: move {folder} away, and the "
                "checkpoint before it is loaded"
            )
    return files


def _match(file: Path) -> re.Match[str] | None:
    return _PART.fullmatch(file.name)


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder contains a checkpoint, complete or not."""
    return _FOLDER.fullmatch(folder.name) is not None


def folders(root: Path) -> list[Path]:
    """Return the checkpoints in a folder, complete or not, newest first."""
    if root.exists() and not root.is_dir():
        raise CheckpointError(f"{root} is a file: checkpoints need a folder of their own")
    if not root.exists():
        return []
    found = [each for each in root.iterdir() if is_checkpoint(each) and each.is_dir()]
    return sorted(found, key=lambda each: (step_of(each), _written(each)), reverse=True)


def _written(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:  # a job has just removed it
        return 0


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint."""
    match = _FOLDER.fullmatch(folder.name)
    assert match is not None
    return int(match[1])


def latest(root: Path) -> Path | None:
    """Return the newest complete checkpoint, or None; warn about each incomplete newer one."""
    for folder in folders(root):
        try:
            parts_of(folder)
        except CheckpointError as error:
            warnings.warn(f"skipping a checkpoint: {error}", RuntimeWarning, stacklevel=3)
        else:
            return folder
    return None


def prune(root: Path, keep: int, newest: Path) -> None:
    """Remove all but the newest complete checkpoints, and incomplete ones before them.

    Args:
        root: The folder of the checkpoints.
        keep: The number to keep.
        newest: Always kept, since parts of it may still be being written.
    """
    # Without another one, a whole checkpoint must stay until the newest is whole.
    whole = 1 if keep > 1 or _is_whole(newest) else 0
    for folder in folders(root):
        if folder == newest:
            continue
        try:
            parts_of(folder)
        except CheckpointError:
            if step_of(folder) > step_of(newest):
                continue
        else:
            whole += 1
            if whole <= keep:
                continue
        shutil.rmtree(folder, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    try:
        parts_of(folder)
    except CheckpointError:
        return False
    return True
