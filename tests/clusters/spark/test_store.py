"""Stores on file systems of pyarrow, and Parquet that ranks read from them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import needs

needs.package("pyarrow")
pytestmark = pytest.mark.nightly

import pyarrow as pa  # noqa: E402
from pyarrow import fs, parquet  # noqa: E402

from horovod.spark.common.store import (  # noqa: E402
    DBFSLocalStore,
    FilesystemStore,
    HDFSStore,
    LocalStore,
    Store,
)
from sirtaki.spark.common.parquet import (  # noqa: E402
    Reader,
    as_array,
    groups,
    spans_of,
)


def test_paths_are_those_of_horovod(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    assert isinstance(store, FilesystemStore)
    assert store.get_train_data_path() == f"{tmp_path}/intermediate_train_data"
    assert store.get_val_data_path(2) == f"{tmp_path}/intermediate_val_data.2"
    assert store.get_test_data_path() == f"{tmp_path}/intermediate_test_data"
    assert store.get_checkpoint_path("run") == f"{tmp_path}/runs/run/checkpoint"
    assert store.get_logs_path("run") == f"{tmp_path}/runs/run/logs"
    remote = store.to_remote("run", 1)
    assert remote.train_data_path == f"{tmp_path}/intermediate_train_data.1"
    assert remote.saving_runs


def test_paths_may_be_given(tmp_path: Path) -> None:
    store = LocalStore(
        tmp_path, train_path="/data/train", runs_path="/runs", checkpoint_filename="model"
    )
    assert store.get_train_data_path() == "/data/train"
    assert store.get_checkpoint_path("a") == "/runs/a/model"


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_files_are_written_whole_and_read(tmp_path: Path, form: str) -> None:
    store = Store.create(form.format(tmp_path))
    path = store.get_checkpoint_path("run")
    assert not store.exists(path)
    store.write(path, b"one")
    store.write(path, b"two")
    assert store.read(path) == b"two"
    assert [each.name for each in (tmp_path / "runs" / "run").iterdir()] == ["checkpoint"]


def test_any_file_system_of_pyarrow_serves(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    store = pickle.loads(pickle.dumps(FilesystemStore("bucket", filesystem=below)))
    store.write_text(f"{store.get_run_path('r')}/a.ckpt", "x")
    assert (tmp_path / "bucket" / "runs" / "r" / "a.ckpt").read_text() == "x"
    assert store.get_checkpoints("r") == ["bucket/runs/r/a.ckpt"]


def test_a_scheme_that_nobody_knows_is_named() -> None:
    with pytest.raises(ValueError, match=r"no store at 'ftp://host/a'.*storage_options="):
        Store.create("ftp://host/a")


def test_what_went_with_pyarrows_old_hdfs_is_named() -> None:
    with pytest.raises(ValueError, match="libhdfs only"):
        HDFSStore("hdfs://host/a", driver="libhdfs3")


def test_paths_of_databricks_are_those_of_its_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "16")
    store = Store.create("dbfs:/models")
    assert isinstance(store, DBFSLocalStore)
    assert store.get_runs_path() == "/dbfs/models/runs"


def test_ranks_read_disjoint_rows_of_real_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folder = tmp_path / "intermediate_train_data"
    folder.mkdir()
    for number in range(3):
        rows = np.arange(number * 10, number * 10 + 10)
        table = pa.table({"x": [[float(r), 0.0] for r in rows], "y": rows})
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=4)
    found = groups(store.fs, store.get_train_data_path())
    assert [group.rows for group in found] == [4, 4, 2] * 3
    read = []
    for rank in range(2):
        reader = Reader(store.fs, spans_of(found, rank, 2), ["x", "y"], 4)
        batches = list(reader.once())
        assert all(batch["x"].shape == (len(batch["y"]), 2) for batch in batches)
        assert all((batch["x"][:, 0] == batch["y"]).all() for batch in batches)
        read += [int(y) for batch in batches for y in batch["y"]]
    assert read == list(range(30))


def test_no_files_are_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No rows found in training dataset"):
        groups(LocalStore(tmp_path).fs, f"{tmp_path}/intermediate_train_data")


@pytest.mark.parametrize(
    ("values", "kind", "shape"),
    [
        ([1.5, 2.5], np.float32, (2,)),
        ([1, 2], np.int64, (2,)),
        ([True, False], np.float32, (2,)),
        ([[1.0, 2.0], [3.0, 4.0]], np.float32, (2, 2)),
        ([[[1], [2]], [[3], [4]]], np.int64, (2, 2, 1)),
    ],
)
def test_columns_become_arrays(values: Any, kind: Any, shape: tuple[int, ...]) -> None:
    array = as_array(pa.chunked_array([pa.array(values)]))
    assert array.dtype == kind
    assert array.shape == shape
    assert array.tolist() == values


@pytest.mark.parametrize(
    ("values", "says"), [([1.0, None], "1 values are missing"), ([[1], [1, 2]], "equally many")]
)
def test_columns_that_are_no_arrays_are_refused(values: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        as_array(pa.chunked_array([pa.array(values)]))
