"""Arrays in untrusted HDF5 files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.errors import CaffeError, needed

_LARGEST = (1 << 31) - 1  # numbers in a dataset, as in Caffe
_ALWAYS_ALLOWED = 64 << 20  # bytes
_MOST_PACKED = 1100  # the limit of deflate; a file that claims more is invalid


def shapes_of(path: Path, names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the shapes of datasets, like `arrays_of`, without reading values."""
    with _opened(path) as file:
        return [tuple(found.shape) for found in _datasets(path, file, names)]


def arrays_of(path: Path, names: Sequence[str], dtype: np.dtype[Any]) -> list[np.ndarray]:
    """Return the values of datasets with one row per item and equal numbers of rows.

    Args:
        path: The HDF5 file.
        names: Its datasets.
        dtype: The type of the result.

    Raises:
        CaffeError: It is no HDF5 file, a dataset is missing or not numeric, the numbers of rows
            differ, or they claim more than the file can hold.
    """
    with _opened(path) as file:
        return [found[()].astype(dtype) for found in _datasets(path, file, names)]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = needed("h5py")
    if not path.is_file():
        raise CaffeError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except CaffeError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise CaffeError(f"{path} cannot be read as HDF5: {error}") from error


def _datasets(path: Path, file: Any, names: Sequence[str]) -> list[Any]:
    found = [_dataset(path, file, name) for name in names]
    rows = {name: item.shape[0] for name, item in zip(names, found, strict=True)}
    if len(set(rows.values())) > 1:
        raise CaffeError(f"{path}: datasets of different numbers of rows: {rows}")
    if not found[0].shape[0]:
        raise CaffeError(f"{path}: dataset '{names[0]}' has no rows")
    return found


def _dataset(path: Path, file: Any, name: str) -> Any:
    h5py = needed("h5py")
    where = f"{path}: dataset '{name}'"
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise CaffeError(f"{where} is missing; there are: {', '.join(list(file)[:20])}")
    if found.dtype.kind not in "fiub" or not found.shape:
        raise CaffeError(f"{where} is not an array of numbers")
    if found.file != file or found.external or found.is_virtual:
        raise CaffeError(f"{where} lies in other files: copy it into this one")
    stored = found.id.get_storage_size() * _MOST_PACKED
    if found.size > _LARGEST or found.nbytes > max(stored, _ALWAYS_ALLOWED):
        raise CaffeError(f"{where} claims {found.size} numbers, more than the file can hold")
    return found
