"""What checkpoints consist of, without ranks: trees, shares, and folders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.checkpoint import CheckpointError, Checkpoints, Framework, files
from sirtaki.checkpoint.guards import _difference
from sirtaki.checkpoint.packing import pack, shares, unpack
from sirtaki.elastic import sample_seed

KEYS = st.one_of(st.text(max_size=3), st.integers(), st.booleans(), st.none())
LEAVES = st.one_of(KEYS, st.floats(allow_nan=False), st.binary(max_size=3))
TREES = st.recursive(
    LEAVES,
    lambda each: st.one_of(
        st.lists(each, max_size=3),
        st.lists(each, max_size=3).map(tuple),
        st.dictionaries(KEYS, each, max_size=3),
        st.dictionaries(KEYS, st.integers(), max_size=3).map(Counter),
    ),
    max_leaves=12,
)


@given(TREES)
def test_a_tree_comes_back_as_it_was(tree: Any) -> None:
    packed = pack(tree, Framework(), [])
    assert repr(unpack(packed, [], trusted=False)) == repr(tree)


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 5))
def test_shares_differ_by_no_more_than_one_array(sizes: list[int], parts: int) -> None:
    filled = [0] * parts
    for size, part in zip(sizes, shares(sizes, parts), strict=True):
        filled[part] += size
    assert sum(filled) == sum(sizes)
    assert max(filled) - min(filled) <= max(sizes, default=0)


def test_numpy_arrays_and_numbers_come_back(tmp_path: Path) -> None:
    state = {"a": np.arange(6, dtype=np.int16).reshape(2, 3).T, "b": np.float32(2), "c": {1: "x"}}
    checkpoints = Checkpoints(Framework())
    checkpoints.save(tmp_path, state, step=1, async_=False)
    loaded = checkpoints.load(tmp_path)
    assert loaded is not None
    assert loaded.state["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert loaded.state["a"].dtype == np.int16
    assert type(loaded.state["b"]) is np.float32
    assert loaded.state["c"] == {1: "x"}


@pytest.mark.parametrize("length", range(0, 2600, 100))
def test_a_file_that_is_cut_short_anywhere_is_skipped(tmp_path: Path, length: int) -> None:
    checkpoints = Checkpoints(Framework())
    checkpoints.save(tmp_path, {"epoch": 1}, step=1, async_=False)
    checkpoints.save(tmp_path, {"epoch": 2}, step=2, async_=False)
    file = files.parts_of(files.folders(tmp_path)[0])[0]
    file.write_bytes(file.read_bytes()[:length])
    with pytest.warns(RuntimeWarning, match=f"{file} is damaged"):
        loaded = checkpoints.load(tmp_path)
    assert loaded is not None
    assert loaded.step == 1


def test_what_another_framework_wrote_is_named(tmp_path: Path) -> None:
    other = Framework()
    other.name = "Other"
    Checkpoints(other).save(tmp_path, {}, step=1, async_=False)
    with pytest.raises(CheckpointError, match="was written with Other, and is loaded with numpy"):
        Checkpoints(Framework()).load(tmp_path)


def test_what_another_program_wrote_is_named(tmp_path: Path) -> None:
    folder = files.folder_of(tmp_path, 1, "01234567")
    folder.mkdir()
    np.savez(folder / "part-00000-of-00001.npz", something=np.ones(2))
    with pytest.raises(CheckpointError, match="no checkpoint of Sirtaki's"):
        Checkpoints(Framework()).load(tmp_path)


def test_a_file_instead_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pt").touch()
    with pytest.raises(CheckpointError, match=r"model\.pt is a file: checkpoints need a folder"):
        Checkpoints(Framework()).load(tmp_path / "model.pt")


def test_what_cannot_be_pickled_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"rank 0: state\['a'\]\[0\], a function"):
        Checkpoints(Framework()).save(tmp_path, {"a": [lambda: None]}, step=1)
    assert list(tmp_path.iterdir()) == []


def test_the_one_just_written_stays_though_there_are_later_steps(tmp_path: Path) -> None:
    checkpoints = Checkpoints(Framework())
    for step in (8, 9, 3):
        checkpoints.save(tmp_path, {}, step=step, keep=2, async_=False)
    assert [files.step_of(each) for each in files.folders(tmp_path)] == [9, 3]


@pytest.mark.parametrize(
    ("hashes", "words"),
    [
        ("aaba", "ranks 2 (host-2) differ from 3 others, first in w (kernel):"),
        ("abca", "ranks 1 (host-1), 2 (host-2) differ from 2 others, first in w (kernel):"),
        ("ab", "ranks 1 (host-1) differ from rank 0, first in w (kernel):"),
    ],
)
def test_the_ranks_that_differ_from_most_are_named(hashes: str, words: str) -> None:
    told = [{"same": b"", "w": each.encode()} for each in hashes]
    hosts = [f"host-{rank}" for rank in range(len(hashes))]
    assert _difference(told, hosts, {"w": "w (kernel)"}).startswith(words)


def test_the_seed_of_a_sample_depends_on_all_that_it_should() -> None:
    seeds = {
        sample_seed(*each) for each in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 23, 4))
    }
    assert len(seeds) == 5
    assert sample_seed(1, 2, 3) == sample_seed(1, 2, 3)
    assert all(0 <= seed < 2**63 for seed in seeds)
