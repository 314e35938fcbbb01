"""Streams of memory: cutting them into runs, and laying them out in one block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.backends import adasum, memory
from sirtaki.core.operations import codes

MIB = 1 << 20
SIZES = st.lists(
    st.one_of(st.integers(0, 2000), st.sampled_from([MIB - 8, MIB, MIB + 8, 5 * MIB])), max_size=12
)


def stream_of(arrays: Sequence[np.ndarray]) -> memory.Stream:
    return [(array.ctypes.data, array.nbytes) for array in arrays]


@given(SIZES, st.sampled_from([MIB, 2 * MIB, 16 * MIB]))
def test_the_runs_of_a_stream_are_the_stream(sizes: list[int], most: int) -> None:
    stream = [(1000 * MIB * index, size) for index, size in enumerate(sizes)]
    parts = []
    for run in memory.runs(stream, most):
        pieces = run.of(stream)
        assert memory.total(pieces) == run.bytes
        assert 0 < run.bytes <= most
        parts += [piece for piece in pieces if piece[1]]
    joined: memory.Stream = []
    for address, size in parts:
        if joined and joined[-1][0] + joined[-1][1] == address:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((address, size))
    assert joined == [segment for segment in stream if segment[1]]


def test_small_neighbours_go_together_and_large_segments_alone() -> None:
    sizes = [10, 20, 3 * MIB, 30, 0, 40]
    stream = [(0, size) for size in sizes]
    found = [(run.first, run.last, run.offset, run.bytes) for run in memory.runs(stream, 2 * MIB)]
    assert found == [(0, 2, 0, 30), (2, 3, 0, 2 * MIB), (2, 3, 2 * MIB, MIB), (3, 6, 0, 70)]


def test_neighbours_are_one_block_where_they_are() -> None:
    data = np.arange(10, dtype=np.uint8)
    streams = [stream_of([data[:4]]), [], stream_of([data[4:5], data[5:]])]
    made = memory.block(streams, memory.Scratch(), "x")
    assert (made.address, made.in_place) == (data.ctypes.data, True)
    assert (made.counts, made.offsets, made.bytes) == ([4, 0, 6], [0, 4, 4], 10)


def test_other_streams_are_copied_into_a_block_and_out_of_it() -> None:
    arrays = [np.full(size, size, np.uint8) for size in (3, 0, 5, 2)]
    streams = [stream_of([arrays[3], arrays[0]]), stream_of([arrays[1]]), stream_of([arrays[2]])]
    made = memory.block(streams, memory.Scratch(), "x")
    assert not made.in_place
    memory.fill(made, streams)
    data = memory.view(made.address, made.bytes)
    assert data.tolist() == [2, 2, 3, 3, 3, 5, 5, 5, 5, 5]
    data += 1
    memory.empty(made, streams)
    assert [array.tolist() for array in arrays] == [[4] * 3, [], [6] * 5, [3] * 2]


def test_scratch_memory_is_used_again_unless_it_is_large() -> None:
    scratch = memory.Scratch()
    place = scratch.address("a", 100)
    assert scratch.address("a", 50) == place
    assert scratch.address("b", 50) != place
    scratch.address("a", 100 * MIB)
    scratch.trim()
    assert list(scratch._held) == ["b"]


@pytest.mark.parametrize(("count", "members"), [(0, 3), (2, 3), (7, 3), (9, 3), (5, 1)])
def test_slices_cover_all_elements_evenly(count: int, members: int) -> None:
    found = memory.slices(count, members)
    assert sum(found) == count
    assert max(found) - min(found) <= 1


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        (codes.F16, np.array([1.5, -2], np.float16)),
        (codes.BF16, np.array([0x3FC0, 0xC000], np.uint16)),
        (codes.F32, np.array([1.5, -2], np.float32)),
        (codes.F64, np.array([1.5, -2])),
    ],
)
def test_every_float_can_be_widened(dtype: int, data: np.ndarray) -> None:
    assert adasum.to_double(data.view(np.uint8), dtype).tolist() == [1.5, -2]


def pairwise_adasum(vectors: list[np.ndarray]) -> np.ndarray:
    """The definition: pairs of neighbours, those beyond a power of two first."""

    def two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (1 - a @ b / (2 * (a @ a))) * a + (1 - a @ b / (2 * (b @ b))) * b

    power = 1 << (len(vectors).bit_length() - 1)
    level = vectors[:power]
    for index, extra in enumerate(vectors[power:]):
        level[index] = two(level[index], extra)
    while len(level) > 1:
        level = [two(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


@pytest.mark.parametrize("members", [1, 2, 3, 4, 5, 7, 8])
def test_the_coefficients_give_what_the_definition_gives(members: int) -> None:
    vectors = np.random.default_rng(members).normal(size=(members, 50))
    found = adasum.coefficients(vectors @ vectors.T) @ vectors
    np.testing.assert_allclose(found, pairwise_adasum(list(vectors)), rtol=1e-9)


def test_a_vector_of_zeros_changes_nothing() -> None:
    vectors = np.array([[1.0, 2.0], [0.0, 0.0]])
    assert (adasum.coefficients(vectors @ vectors.T) @ vectors).tolist() == [1.0, 2.0]
