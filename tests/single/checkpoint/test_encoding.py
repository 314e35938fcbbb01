"""Trees as JSON and bytes, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sirtaki.checkpoint import CheckpointError
from sirtaki.checkpoint.codec import numpy_from_array, numpy_to_array
from sirtaki.checkpoint.encoding import Encoded, decode, encode

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | hnp.arrays(
        hnp.integer_dtypes() | hnp.floating_dtypes(),
        hnp.array_shapes(min_dims=0),
        elements={"allow_nan": False},
    )
)
KEYS = st.text() | st.integers() | st.tuples(st.text(), st.integers())
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


def written(found: Encoded) -> list[bytes]:
    files = []
    for parts, size in zip(found.files, found.sizes, strict=True):
        file = bytearray(size)
        for begin, data in parts:
            file[begin : begin + len(data)] = bytes(data)
        files.append(bytes(file))
    return files


def read_back(tree: Any, files: int) -> Any:
    found = encode({"spread": tree}, numpy_to_array, files, "spread")
    data = written(found)

    def read(file: int, begin: int, length: int) -> bytearray:
        return bytearray(data[file][begin : begin + length])

    return decode(json.loads(json.dumps(found.tree)), numpy_from_array, read)["spread"]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (np.ndarray, np.generic)):
        return (
            isinstance(other, (np.ndarray, np.generic))
            and one.dtype == other.dtype
            and np.array_equal(one, other)
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(TREES, st.integers(1, 4))
def test_a_tree_is_read_as_it_was_written(tree: Any, files: int) -> None:
    assert same(tree, read_back(tree, files))


def test_arrays_are_spread_evenly_over_files() -> None:
    found = encode({"spread": [np.zeros(100)] * 8}, numpy_to_array, 4, "spread")
    assert [len(parts) for parts in found.files] == [2, 2, 2, 2]


def test_what_is_not_spread_is_in_the_first_file() -> None:
    found = encode({"other": [np.zeros(100)] * 8}, numpy_to_array, 4, "spread")
    assert [len(parts) for parts in found.files] == [8, 0, 0, 0]


def test_a_value_that_is_no_part_of_a_tree_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"a\.b\.1, of type object"):
        encode({"a": {"b": [1, object()]}}, numpy_to_array, 1)


@pytest.mark.parametrize(
    "tree",
    [[1], {"list": 1}, {"pickle": "x"}, {"list": [], "dict": []}, {"array": [1]}, {"bytes": "%"}],
)
def test_a_tree_that_makes_no_sense_is_an_error(tree: Any) -> None:
    with pytest.raises(CheckpointError, match="makes no sense"):
        decode(tree, numpy_from_array, lambda *_: bytearray())
