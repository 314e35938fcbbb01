"""HDF5Data and HDF5Output."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from caffe_tests.data.records import layer_of
from sirtaki_caffe.data.layers.hdf5 import HDF5Output
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import Context, World
from sirtaki_caffe.proto.schema import LayerParameter

ROWS = np.arange(10 * 8 * 6 * 5, dtype=np.float32).reshape(10, 8, 6, 5)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Two files of ten rows; the second is packed and its labels are small integers."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"], file["label"] = ROWS, np.arange(1, 11, dtype=np.float32)[:, None]
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("data", data=ROWS + 1, compression="gzip")
        labels = np.arange(2, 12, dtype=np.uint8)[:, None]
        file.create_dataset("label", data=labels, compression="gzip")
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.h5\n{tmp_path}/b.h5\n")
    return tmp_path / "list.txt"


def hdf5(path: Path, batch: int = 5, more: str = "") -> str:
    return (
        'name: "h" type: "HDF5Data" top: "data" top: "label" '
        f'hdf5_data_param {{ source: "{path}" batch_size: {batch} {more} }}'
    )


def labels_of(text: str, count: int, **context: object) -> list[int]:
    with closing(layer_of(text, **context)) as layer:
        return [int(x) for _ in range(count) for x in layer.forward([])[1].flatten()]


FIRST, SECOND = list(range(1, 11)), list(range(2, 12))


def test_rows_come_file_after_file_and_round_again(sample: Path) -> None:
    with closing(layer_of(hdf5(sample))) as layer:
        assert layer.shapes([]) == [(5, 8, 6, 5), (5, 1)]
        for _ in range(3):
            for rows, labels in ((ROWS, FIRST), (ROWS + 1, SECOND)):
                for start in (0, 5):
                    data, label = layer.forward([])
                    assert np.array_equal(data.numpy(), rows[start : start + 5])
                    assert label[:, 0].tolist() == labels[start : start + 5]


def test_a_batch_may_span_files(sample: Path) -> None:
    assert labels_of(hdf5(sample, 7), 4) == (FIRST + SECOND + FIRST)[:28]


def test_rows_are_dealt_to_the_processes(sample: Path) -> None:
    everything = (FIRST + SECOND) * 3
    for rank in range(3):
        assert labels_of(hdf5(sample), 4, world=World(rank, 3)) == everything[rank::3][:20]


def test_files_and_rows_are_shuffled_anew_each_time_round(sample: Path) -> None:
    text = hdf5(sample, 10, "shuffle: true")
    rounds = [labels_of(text, 8, shared_seed=4)[i : i + 20] for i in range(0, 80, 20)]
    assert all(sorted(r) == sorted(FIRST + SECOND) for r in rounds)
    assert all(sorted(r[:10]) in (FIRST, SECOND) for r in rounds)
    assert len({tuple(r) for r in rounds}) == 4
    alone = [label for labels in rounds for label in labels]
    for rank in range(2):
        world = World(rank, 2)
        assert labels_of(text, 4, shared_seed=4, world=world) == alone[rank::2]


def test_a_run_goes_on_where_another_stood(sample: Path) -> None:
    text = hdf5(sample, 3, "shuffle: true")
    with closing(layer_of(text, shared_seed=1)) as layer:
        for _ in range(5):
            layer.forward([])
        position = layer.position()
        expected = [layer.forward([])[1] for _ in range(9)]
    with closing(layer_of(text, shared_seed=2)) as layer:
        layer.restore(position)
        assert all(torch.equal(layer.forward([])[1], labels) for labels in expected)


def test_doubles_stay_exact_in_nets_of_doubles(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = file["label"] = np.array([1 / 3, 2 / 3])
    (tmp_path / "list").write_text(str(tmp_path / "a.h5"))
    with closing(layer_of(hdf5(tmp_path / "list", 2), dtype=torch.float64)) as layer:
        assert layer.forward([])[0].tolist() == [1 / 3, 2 / 3]


def change(sample: Path, what: str) -> None:
    folder = sample.parent
    with h5py.File(folder / "a.h5", "a") as file:
        if what == "missing":
            del file["label"]
        elif what == "rows":
            del file["label"]
            file["label"] = np.zeros(9)
        elif what == "text":
            del file["label"]
            file["label"] = [b"one"] * 10
        elif what == "group":
            del file["label"]
            file.create_group("label")
        elif what == "shape":
            del file["data"]
            file["data"] = ROWS[:, :1]
        elif what == "empty":
            del file["data"], file["label"]
            file["data"], file["label"] = np.zeros((0, 2)), np.zeros(0)
        elif what == "bomb":
            del file["data"]
            file.create_dataset("data", (10, 10_000_000_000), "f4", chunks=(1, 1000))
        elif what == "link":
            del file["label"]
            file["label"] = h5py.ExternalLink(str(folder / "b.h5"), "label")
        elif what == "external":
            del file["label"]
            file.create_dataset("label", (10,), "u1", external=[("/etc/passwd", 0, 10)])
    if what == "foreign":
        (folder / "a.h5").write_text("no HDF5")
    elif what == "cut":
        content = (folder / "a.h5").read_bytes()
        (folder / "a.h5").write_bytes(content[: len(content) // 2])
    elif what == "gone":
        (folder / "a.h5").unlink()
    elif what == "no list":
        sample.unlink()
    elif what == "no files":
        sample.write_text("\n")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("missing", "a.h5: dataset 'label' is missing; there are: data"),
        ("rows", "different numbers of rows"),
        ("text", "'label' is not an array of numbers"),
        ("group", "'label' is missing"),
        ("shape", "b.h5: its rows have other shapes"),
        ("empty", "has no rows"),
        ("bomb", "more than the file can hold"),
        ("link", "lies in other files"),
        ("external", "lies in other files"),
        ("foreign", "a.h5 cannot be read as HDF5"),
        ("cut", "a.h5 cannot be read as HDF5"),
        ("gone", "a.h5: no such file"),
        ("no list", "list.txt: No such file"),
        ("no files", "lists no files"),
    ],
)
def test_a_bad_file_is_named(sample: Path, what: str, why: str) -> None:
    change(sample, what)
    with pytest.raises(LayerError, match=rf"layer 'h'.*{why}"):
        layer_of(hdf5(sample))


def test_transformations_are_refused(sample: Path) -> None:
    with pytest.raises(LayerError, match="transform_param"):
        layer_of(hdf5(sample) + " transform_param { scale: 2 }")


def test_output_has_all_batches(tmp_path: Path) -> None:
    proto = LayerParameter(name="o", type="HDF5Output")
    proto.hdf5_output_param.file_name = str(tmp_path / "out.h5")
    layer = HDF5Output(proto, Context())
    layer.setup([(2, 3), (2,)])
    data, labels = torch.rand(4, 3), torch.arange(4.0)
    for part in (slice(0, 2), slice(2, 4)):
        assert layer.forward([data[part], labels[part]]) == []
    layer.close()
    with h5py.File(tmp_path / "out.h5") as file:
        assert np.array_equal(file["data"][()], data.numpy())
        assert file["label"][()].tolist() == [0, 1, 2, 3]


def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    proto = LayerParameter(name="o", type="HDF5Output")
    proto.hdf5_output_param.file_name = str(tmp_path / "no" / "out.h5")
    with pytest.raises(LayerError, match=r"'o'.*no/out.h5"):
        HDF5Output(proto, Context()).setup([(2, 3), (2,)])
