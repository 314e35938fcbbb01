"""Arrays of all of NumPy's classes and types: taken, or refused by name with the cure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.operations.codes import DTYPES, REDUCED_DTYPES

VERBS: dict[str, Callable[[Any], Any]] = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": hvd.allreduce_async,
    "allreduce_async_": hvd.allreduce_async_,
    "grouped_allreduce": lambda array: hvd.grouped_allreduce([np.ones(2), array]),
    "grouped_allreduce_": lambda array: hvd.grouped_allreduce_([np.ones(2), array]),
    "allgather": hvd.allgather,
    "grouped_allgather": lambda array: hvd.grouped_allgather([np.ones(2), array]),
    "broadcast": lambda array: hvd.broadcast(array, 0),
    "broadcast_": lambda array: hvd.broadcast_(array, 0),
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "grouped_reducescatter": lambda array: hvd.grouped_reducescatter([np.ones(2), array]),
    "reduce": lambda array: hvd.reduce(array, 0),
    "gather": lambda array: hvd.gather(array, 0),
    "scatter": lambda array: hvd.scatter(array, [array] * hvd.size(), 0),
    "send": lambda array: hvd.send(array, hvd.rank()),
    "isend": lambda array: hvd.isend(array, hvd.rank()),
    "recv": lambda array: hvd.recv(array, hvd.rank()),
    "irecv": lambda array: hvd.irecv(array, hvd.rank()),
}
every_verb = pytest.mark.parametrize("verb", VERBS)


class Metres(np.ndarray):  # as arrays of astropy and pint, which have a unit
    pass


ODD = {
    "masked": (np.ma.array([1.0, 2.0], mask=[0, 1]), r"would lose its mask: give x\.filled"),
    "unmasked": (np.ma.array([1.0, 2.0]), "would lose its mask"),
    "matrix": (np.asmatrix([[1.0]]), r"a matrix may give .* give np\.asarray\(x\)"),
    "record": (np.rec.array([(1, 2.0)], dtype="i4,f8"), "a recarray may give"),
    "characters": (np.char.array(["a"]), "a chararray may give"),
    "unit": (np.ones(2).view(Metres), "a Metres may give"),
    "list": ([1.0], r"expected a numpy array, not list: give np\.asarray"),
    "number": (np.float64(1.0), "expected a numpy array, not float64"),
    "none": (None, "expected a numpy array, not NoneType"),
}


@every_verb
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_plain_array_is_refused_by_name(odd: str, verb: str) -> None:
    value, message = ODD[odd]
    with pytest.raises(TypeError, match=message):
        VERBS[verb](value)


def kinds() -> dict[str, np.dtype]:
    """All types of NumPy and ml_dtypes, and the former in the other order of bytes."""
    found = [np.dtype(kind) for kind in np.sctypeDict.values() if np.dtype(kind).itemsize]
    found += [dtype.newbyteorder("S") for dtype in found]
    found += [np.dtype(text) for text in ("M8[D]", "m8[s]", "S3", "U3", "V3", "i4,f8")]
    if hasattr(np.dtypes, "StringDType"):
        found.append(np.dtypes.StringDType())
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in DTYPES:
        if isinstance(getattr(ml_dtypes, name, None), type):
            found.append(np.dtype(getattr(ml_dtypes, name)))
    return {str(dtype): dtype for dtype in found}


KINDS = kinds()
CURES = r"(give|send) (x\.|its |it with )"


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_taken_or_refused_by_name_with_the_cure(kind: str) -> None:
    dtype = KINDS[kind]
    for name, verb in VERBS.items():
        if name in ("isend", "send", "recv", "irecv"):
            continue
        array = np.zeros(2 * hvd.size(), dtype)
        try:
            result = verb(array)
        except ValueError as error:
            told = str(error)
            refused = rf"Tensor type {re.escape(str(array.dtype))} is not supported; .*{CURES}"
            assert re.search(refused, told) or (
                dtype.name not in REDUCED_DTYPES
                and re.search(f"{dtype.name} cannot be reduced", told)
            ), told
        else:
            if isinstance(result, int):
                result = hvd.synchronize(result)
            assert array.dtype.isnative
            assert array.dtype.name in DTYPES
            assert result is None or isinstance(result, list) or result.dtype == array.dtype


SMALL = [name for name in KINDS if name in DTYPES and name not in REDUCED_DTYPES]


def small(rank: int, dtype: np.dtype, rows: int = 3) -> np.ndarray:
    """Ones and twos, and what becomes of twos in types that have none."""
    return ((np.arange(rows * 2) + rank) % 2 + 1).astype(np.float32).astype(dtype).reshape(rows, 2)


@pytest.mark.parametrize("name", [*SMALL, "bfloat16"])
def test_types_of_ml_dtypes_travel(name: str) -> None:
    dtype, size, rank = KINDS[name], hvd.size(), hvd.rank()
    for result, expected in (
        (hvd.broadcast(small(rank, dtype), size - 1), small(size - 1, dtype)),
        (
            hvd.allgather(small(rank, dtype, rank + 1)),
            np.concatenate([small(r, dtype, r + 1) for r in range(size)]),
        ),
        (
            hvd.alltoall(small(rank, dtype, size)),
            np.stack([small(r, dtype, size)[rank] for r in range(size)]),
        ),
        (
            hvd.gather(small(rank, dtype), 0),
            np.concatenate([small(r, dtype) for r in range(size)]) if rank == 0 else None,
        ),
    ):
        assert expected is None or result.dtype == dtype
        assert np.array_equal(result, expected)
    filled = small(rank, dtype)
    assert hvd.broadcast_(filled, 0) is filled
    assert np.array_equal(filled, small(0, dtype))
    received = np.empty((3, 2), dtype)
    handle = hvd.isend(small(rank, dtype), (rank + 1) % size)
    assert hvd.recv(received) == (rank - 1) % size
    hvd.synchronize(handle)
    assert np.array_equal(received, small((rank - 1) % size, dtype))


@pytest.mark.parametrize("name", SMALL)
def test_reductions_of_small_types_are_refused_by_name(name: str) -> None:
    for verb in ("allreduce", "allreduce_", "grouped_allreduce", "reducescatter", "reduce"):
        with pytest.raises(ValueError, match=f"{name} cannot be reduced; broadcast, allgather"):
            VERBS[verb](np.zeros(2, KINDS[name]))


@pytest.mark.skipif("hvd.size() == 1", reason="one rank cannot disagree with itself")
def test_types_of_one_size_are_not_taken_for_each_other() -> None:
    name = "int4" if hvd.rank() == 0 else "uint4"
    with pytest.raises(hvd.MismatchError, match=r"int4.*uint4"):
        hvd.broadcast(np.zeros(2, KINDS[name]), 0)


@pytest.mark.parametrize("verb", ["allgather", "alltoall", "reducescatter", "gather"])
def test_parts_of_a_number_without_dimensions_are_a_wrong_argument(verb: str) -> None:
    with pytest.raises(ValueError, match=f"{verb} needs rows, but got a tensor without dimensions"):
        VERBS[verb](np.array(1.0))


def test_an_array_of_a_file_is_taken(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "numbers", np.float64, "w+", shape=(2,))
    mapped[:] = hvd.rank()
    total = sum(range(hvd.size()))
    assert hvd.allreduce(mapped, op=hvd.Sum).tolist() == [total] * 2
    assert hvd.allreduce_(mapped, op=hvd.Sum) is mapped
    assert mapped.tolist() == [total] * 2
