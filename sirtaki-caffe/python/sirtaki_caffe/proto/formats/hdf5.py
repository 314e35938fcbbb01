"""Weights and states in HDF5.

The declared size of a dataset is compared with its size in the file before it is read. Links to
other files, and datasets that need more than the library itself, are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import Array, Saved
from sirtaki_caffe.proto.files import reason, written_beside

_SIGNATURE = b"\x89HDF\r\n\x1a\n"

_DEEPEST = 64
# deflate, shuffle, fletcher32: always in the library; other filters load code.
_FILTERS = {1, 2, 3}
# Bytes of numbers per byte of the file: zeros can be compressed much more.
_MOST_INFLATED = 64
_MOST_BLOBS = 1000

_NUMBERS = ("iteration", "current_step", "minimum_loss", "iter_last_event")
_NAMES = {"iteration": "iter"}


def is_hdf5(path: str | Path) -> bool:
    """Return whether a file begins like HDF5.

    Raises:
        CaffeError: It cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except (OSError, ValueError) as error:
        raise CaffeError(f"cannot read {path}: {reason(error)}") from error


def read_layers(path: str | Path) -> list[tuple[str, list[Array | None]]]:
    """Return the layers of a weights file, and their blobs; None for missing blobs.

    Raises:
        CaffeError: It cannot be read, or contains no weights.
    """
    with _opened(path) as file:
        data = _child(file, "data")
        if data is None:
            raise CaffeError(f"{path} is no file of weights: it has no group 'data'")
        return list(_Reader(path).layers(data, "", 0))


def write_layers(
    path: str | Path, layers: Sequence[str], blobs: Mapping[str, Sequence[Saved]]
) -> None:
    """Write weights: a group for each layer, with a dataset for each blob that it owns.

    Raises:
        CaffeError: It cannot be written.
    """
    _check_names(path, layers, blobs)
    keeps_diff = any(each.diff is not None for saved in blobs.values() for each in saved)
    with _created(path) as file:
        for name in layers:
            data = file.require_group(f"data/{name}")
            diff = file.require_group(f"diff/{name}") if keeps_diff else None
            for index, each in enumerate(blobs.get(name, ())):
                if each.owner:
                    data[str(index)] = _float(each.data)
                if diff is not None and each.diff is not None:
                    diff[str(index)] = _float(each.diff)


def _check_names(
    path: str | Path, layers: Sequence[str], blobs: Mapping[str, Sequence[Saved]]
) -> None:
    """Check names: one with "/" is nested in other groups, and must not replace a blob."""
    seen: set[str] = set()
    taken = {f"{name}/{index}" for name, saved in blobs.items() for index in range(len(saved))}
    for name in layers:
        parts = name.split("/")
        heads = {"/".join(parts[: end + 1]) for end in range(len(parts))}
        if "" in parts or "." in parts or "\0" in name or heads & taken or name in seen:
            raise CaffeError(
                f"cannot write {path}: HDF5 has no place for a layer '{name}' beside the others; "
                "rename it, or write the binary format"
            )
        seen.add(name)


def read_state(path: str | Path) -> dict[str, Any]:
    """Return the fields of `State` in a file.

    Raises:
        CaffeError: It cannot be read, or contains no state.
    """
    with _opened(path) as file:
        reader = _Reader(path)
        found: dict[str, Any] = {"learned_net": ""}
        for field in _NUMBERS:
            name = _NAMES.get(field, field)
            value = _child(file, name)
            if value is not None:
                array = reader.array(value, name).reshape(-1)
                if array.size != 1 or not np.isfinite(array[0]):
                    raise CaffeError(f"{path}: {name} is not a number")
                found[field] = float(array[0]) if field == "minimum_loss" else int(array[0])
        if "iteration" not in found:
            raise CaffeError(f"{path} is no solver state: it has no 'iter'")
        net = _child(file, "learned_net")
        if net is not None:
            found["learned_net"] = reader.string(net, "learned_net")
        history = _child(file, "history")
        found["history"] = [] if history is None else list(reader.history(history))
        return found


def write_state(path: str | Path, state: Mapping[str, Any], plateau: bool) -> None:
    """Write a state.

    Args:
        path: The file.
        state: The fields of a `State`.
        plateau: Whether to write the data of policy "plateau".

    Raises:
        CaffeError: It cannot be written.
    """
    with _created(path) as file:
        for field in _NUMBERS if plateau else _NUMBERS[:2]:
            kind = np.float32 if field == "minimum_loss" else np.int32
            file[_NAMES.get(field, field)] = np.array([state[field]], kind)
        # Like H5LTmake_dataset_string: of fixed length, with a terminating zero.
        name = state["learned_net"].encode() + b"\0"
        h5py = _h5py()
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(len(name))
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        dataset = h5py.h5d.create(file.id, b"learned_net", kind, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(name, f"S{len(name)}"), kind)
        history = file.create_group("history")
        for index, blob in enumerate(state["history"]):
            history[str(index)] = _float(blob)


class _Reader:
    """Reads the groups and datasets of a file, each once, and no more than the file can contain."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._seen: set[int] = set()
        self._left = _MOST_INFLATED * Path(path).stat().st_size

    def layers(self, group: Any, name: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
        """Yield the layers in a group; a name with "/" is a nested group for each of its parts."""
        if depth > _DEEPEST:
            raise CaffeError(f"{self._path}: more than {_DEEPEST} groups in one another")
        blobs: dict[int, Array] = {}
        groups = {}
        for key in group:
            child = _child(group, key)
            if isinstance(child, _h5py().Group):
                self._see(child, f"group '{key}'")
                groups[key] = child
            elif name and key.isdigit() and int(key) < _MOST_BLOBS:
                blobs[int(key)] = self.array(child, f"layer '{name}', blob {key}")
        if name and (blobs or not groups):
            yield name, [blobs.get(index) for index in range(max(blobs, default=-1) + 1)]
        for key, child in groups.items():
            yield from self.layers(child, f"{name}/{key}" if name else key, depth + 1)

    def history(self, group: Any) -> Iterator[Array]:
        """Yield the blobs 0, 1, … of a group."""
        for index in range(len(group)):
            child = _child(group, str(index))
            if child is None:
                raise CaffeError(f"{self._path}: history has no blob {index}")
            yield self.array(child, f"history, blob {index}")

    def array(self, dataset: Any, what: str) -> Array:
        """Return the numbers of a dataset, as float64 if stored so, else float32."""
        self._check(dataset, what)
        if dataset.dtype.kind not in "fiu":
            raise CaffeError(f"{self._path}: {what} holds no numbers")
        array = np.asarray(dataset[()])
        return array.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)

    def string(self, dataset: Any, what: str) -> str:
        """Return the string in a dataset."""
        self._check(dataset, what)
        value = dataset[()]
        if not isinstance(value, bytes):
            raise CaffeError(f"{self._path}: {what} is no string")
        return value.split(b"\0")[0].decode("utf-8", "surrogateescape")

    def _check(self, dataset: Any, what: str) -> None:
        """Refuse a dataset that declares more data than the file has, or is stored elsewhere."""
        h5py = _h5py()
        if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
            raise CaffeError(f"{self._path}: {what} is no array")
        self._see(dataset, what)
        plist = dataset.id.get_create_plist()
        filters = {plist.get_filter(index)[0] for index in range(plist.get_nfilters())}
        if dataset.is_virtual or plist.get_external_count() or not filters <= _FILTERS:
            raise CaffeError(f"{self._path}: {what} is stored in a way that is refused")
        stored = dataset.id.get_storage_size()
        if not filters and dataset.nbytes > stored:
            raise CaffeError(
                f"{self._path}: {what} says {dataset.nbytes} bytes, {stored} are in the file"
            )
        self._left -= dataset.nbytes
        if self._left < 0:
            raise CaffeError(
                f"{self._path}: {what} makes more than {_MOST_INFLATED} bytes of each of the file"
            )

    def _see(self, found: Any, what: str) -> None:
        address = _h5py().h5o.get_info(found.id).addr
        if address in self._seen:
            raise CaffeError(f"{self._path}: {what} has a second name")
        self._seen.add(address)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise CaffeError("HDF5 needs h5py: pip install h5py") from error
    return h5py


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    h5py = _h5py()
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, CaffeError):
            raise
        raise CaffeError(f"{path} is no HDF5 file, or is damaged: {reason(error)}") from error


@contextlib.contextmanager
def _created(path: str | Path) -> Iterator[Any]:
    h5py = _h5py()
    with written_beside(path) as beside, h5py.File(beside, "w") as file:
        yield file


def _child(group: Any, key: str) -> Any:
    """Return the object with a name in a group, or None."""
    h5py = _h5py()
    link = group.get(key, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        raise CaffeError(f"{group.file.filename}: '{key}' leads to another place, which is refused")
    return group[key]


def _float(array: Array) -> Array:
    return np.asarray(array, np.float64 if array.dtype == np.float64 else np.float32)
