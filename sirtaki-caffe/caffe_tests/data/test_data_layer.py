"""Data: which records, in which order, of databases that are whole or not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch

from caffe_tests.data.records import batches, layer_of, needs_leveldb, numbered, write_images
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import World
from sirtaki_caffe.proto.schema import Datum


def data(path: Path, more: str = "", batch: int = 2, transform: str = "") -> str:
    return (
        'name: "d" type: "Data" top: "data" top: "label" '
        f'data_param {{ source: "{path}" batch_size: {batch} backend: LMDB {more} }} '
        f"transform_param {{ {transform} }}"
    )


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    return write_images(tmp_path / "seven", numbered(7))


def test_records_come_in_the_order_of_their_keys_and_round_again(seven: Path) -> None:
    with closing(layer_of(data(seven))) as layer:
        assert layer.shapes([]) == [(2, 1, 4, 4), (2,)]
        assert batches(layer, 5) == [[0, 1], [2, 3], [4, 5], [6, 0], [1, 2]]


def test_pixels_are_those_of_the_record(seven: Path) -> None:
    with closing(layer_of(data(seven, transform="scale: 0.5"))) as layer:
        images, labels = layer.forward([])
        assert torch.equal(images, torch.tensor([0.0, 0.5])[:, None, None, None].expand(2, 1, 4, 4))
        assert labels.dtype == torch.float32


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_processes_take_the_records_in_turn(seven: Path, phase: str) -> None:
    taken = []
    for rank in range(3):
        text = data(seven) + f" phase: {phase}"
        with closing(layer_of(text, world=World(rank, 3))) as layer:
            taken.append(batches(layer, 4))
    assert taken[0] == [[0, 3], [6, 2], [5, 1], [4, 0]]
    assert taken[1] == [[1, 4], [0, 3], [6, 2], [5, 1]]
    assert taken[2] == [[2, 5], [1, 4], [0, 3], [6, 2]]


def test_a_world_shuffles_alike_and_anew_each_time_round(seven: Path) -> None:
    def taken(rank: int, size: int) -> list[int]:
        text = data(seven, "shuffle: true", batch=7)
        with closing(layer_of(text, world=World(rank, size), shared_seed=5)) as layer:
            return [label for batch in batches(layer, 2) for label in batch]

    alone = taken(0, 1)
    assert sorted(alone[:7]) == sorted(alone[7:]) == list(range(7))
    assert alone[:7] != alone[7:]
    assert taken(0, 2)[:7] == alone[::2]
    assert taken(1, 2)[:7] == alone[1::2]


def test_another_seed_shuffles_otherwise(tmp_path: Path) -> None:
    path = write_images(tmp_path / "many", numbered(50))
    orders = []
    for seed in (1, 2, 1):
        with closing(layer_of(data(path, "shuffle: true", 50), shared_seed=seed)) as layer:
            orders.append(batches(layer, 1))
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


def test_a_source_that_names_the_process_is_not_divided(tmp_path: Path) -> None:
    for rank in range(2):
        write_images(
            tmp_path / f"part{rank}of2", numbered(3), labels=[10 * rank + i for i in (1, 2, 3)]
        )
    with closing(layer_of(data(tmp_path / "part%#of%*"), world=World(1, 2))) as layer:
        assert batches(layer, 2) == [[11, 12], [13, 11]]


@pytest.mark.parametrize("more", ["", "shuffle: true"])
def test_a_run_goes_on_where_another_stood(tmp_path: Path, more: str) -> None:
    path = write_images(
        tmp_path / "db", [np.random.default_rng(0).integers(0, 255, (3, 8, 8), np.uint8)] * 7
    )
    text = data(path, more, transform="crop_size: 5 mirror: true")
    with closing(layer_of(text, shared_seed=3)) as layer:
        batches(layer, 5)
        position = layer.position()
        expected = [layer.forward([]) for _ in range(6)]
    with closing(layer_of(text, shared_seed=99)) as layer:
        batches(layer, 2)
        layer.restore(position)
        for images, labels in expected:
            again = layer.forward([])
            assert torch.equal(again[0], images)
            assert torch.equal(again[1], labels)


def test_processes_draw_for_an_item_what_one_process_would(tmp_path: Path) -> None:
    images = [np.random.default_rng(n).integers(0, 255, (3, 8, 8), np.uint8) for n in range(4)]
    text = data(
        write_images(tmp_path / "db", images), batch=2, transform="crop_size: 5 mirror: true"
    )
    parts = []
    for rank in range(2):
        with closing(layer_of(text, world=World(rank, 2))) as layer:
            parts.append(layer.forward([])[0])
    with closing(layer_of(text.replace("batch_size: 2", "batch_size: 4"))) as layer:
        whole = layer.forward([])[0]
    assert torch.equal(whole[0::2], parts[0])
    assert torch.equal(whole[1::2], parts[1])


def test_encoded_records_are_decoded_to_bgr(tmp_path: Path) -> None:
    blue = np.zeros((3, 6, 5), np.uint8)
    blue[0] = 200
    from sirtaki_caffe.data.images import encode_image
    from sirtaki_caffe.data.stores.databases import write_database

    with write_database("lmdb", tmp_path / "db") as writer:
        record = Datum(data=encode_image(blue, "png"), encoded=True, label=4)
        writer.put(b"0", record.SerializeToString())
    with closing(layer_of(data(tmp_path / "db", batch=1))) as layer:
        assert torch.equal(layer.forward([])[0][0], torch.tensor(blue).float())
    with closing(layer_of(data(tmp_path / "db", batch=1, transform="force_gray: true"))) as layer:
        gray = layer.forward([])[0]
        assert gray.shape == (1, 1, 6, 5)
        assert abs(float(gray[0, 0, 0, 0]) - 0.114 * 200) <= 1


def test_records_of_numbers_stay_numbers(tmp_path: Path) -> None:
    image = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 2, 2)
    path = write_images(tmp_path / "db", [image])
    with closing(layer_of(data(path, batch=1), dtype=torch.float64)) as layer:
        assert torch.equal(layer.forward([])[0][0], torch.tensor(image).double())


def test_one_top_brings_no_labels(seven: Path) -> None:
    with closing(layer_of(data(seven).replace(' top: "label"', ""))) as layer:
        assert len(layer.forward([])) == len(layer.shapes([])) == 1


def test_one_database_serves_several_layers(seven: Path) -> None:
    with closing(layer_of(data(seven))) as first, closing(layer_of(data(seven))) as second:
        assert batches(first, 2) == batches(second, 2)


@pytest.mark.parametrize(
    "position", [None, [], {"items": 1}, {"items": -1, "seed": 1}, {"items": 1, "seed": 1 << 64}]
)
def test_a_position_that_is_none_is_refused(seven: Path, position: object) -> None:
    refused = pytest.raises(LayerError, match=r"'d'.*no position")
    with closing(layer_of(data(seven))) as layer, refused:
        layer.restore(position)


@pytest.mark.parametrize("more", ["", "shuffle: true"])
def test_the_log_tells_what_is_read_and_when_it_begins_again(seven: Path, more: str) -> None:
    lines: list[tuple[str, str]] = []
    text = data(seven, more + " prefetch: 1", batch=7)
    with closing(layer_of(text, log=lambda *line: lines.append(line))) as layer:
        assert lines == [
            ("db_lmdb.cpp", f"Opened lmdb {seven}"),
            ("data_layer.cpp", "output data size: 7,1,4,4"),
        ]
        batches(layer, 3)
    again = lines[2:]
    assert set(again) == {("data_layer.cpp", "Restarting data prefetching from start.")}
    assert 2 <= len(again) <= 3


def test_closing_twice_takes_nothing_from_others(seven: Path) -> None:
    with closing(layer_of(data(seven))) as layer:
        other = layer_of(data(seven))
        other.close()
        other.close()
        assert batches(layer, 1) == [[0, 1]]


def test_a_layer_leaves_no_threads(seven: Path) -> None:
    import threading

    before = set(threading.enumerate())
    layer = layer_of(data(seven))
    layer.forward([])
    assert set(threading.enumerate()) > before
    layer.close()
    assert set(threading.enumerate()) == before


@needs_leveldb
def test_leveldb_is_read_by_two_at_once_and_left_as_it_is(tmp_path: Path) -> None:
    path = write_images(tmp_path / "db", numbered(5), "leveldb")
    before = sorted((f.name, f.stat().st_mtime_ns) for f in path.iterdir())
    text = data(path).replace("backend: LMDB", "")
    with closing(layer_of(text)) as layer, closing(layer_of(text, world=World(1, 2))) as other:
        assert batches(layer, 6) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 1]]
        assert batches(other, 3) == [[1, 3], [0, 2], [4, 1]]
    assert sorted((f.name, f.stat().st_mtime_ns) for f in path.iterdir()) == before


@needs_leveldb
def test_leveldb_is_shuffled_and_continued(tmp_path: Path) -> None:
    path = write_images(tmp_path / "db", numbered(5), "leveldb")
    text = data(path, "shuffle: true", 5).replace("backend: LMDB", "")
    with closing(layer_of(text)) as layer:
        first, position = batches(layer, 1), layer.position()
        assert sorted(first[0]) == [0, 1, 2, 3, 4]
        second = batches(layer, 1)
        layer.restore(position)
        assert batches(layer, 1) == second


def damaged(path: Path, record: bytes, key: bytes = b"00000003x") -> Path:
    with lmdb.open(str(path)) as env, env.begin(write=True) as transaction:
        transaction.put(key, record)
    return path


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"\x12\x34 no datum", "not a Datum, or cut short"),
        (Datum(channels=1, height=4, width=4, data=b"123").SerializeToString(), "needs 16 numbers"),
        (Datum(channels=1, height=-4, width=4, data=b"1").SerializeToString(), "1x-4x4"),
        (Datum(data=b"no image", encoded=True).SerializeToString(), "cannot be decoded"),
        (Datum(channels=1, height=5, width=4, data=bytes(20)).SerializeToString(), "1x5x4"),
    ],
)
def test_a_bad_record_is_named(seven: Path, record: bytes, why: str) -> None:
    with closing(layer_of(data(damaged(seven, record), batch=8))) as layer:
        with pytest.raises(LayerError, match=r"layer 'd'.*seven, record b'00000003x'") as caught:
            layer.forward([])
        assert why in str(caught.value)


def test_a_crop_larger_than_the_images_is_refused_when_the_layer_is_built(seven: Path) -> None:
    with pytest.raises(LayerError, match="4x4 is smaller than the crop of 5x5"):
        layer_of(data(seven, transform="crop_size: 5"))


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match=r"nowhere: no such LMDB"):
        layer_of(data(tmp_path / "nowhere"))


def test_an_empty_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match="has no records"):
        layer_of(data(write_images(tmp_path / "empty", [])))


def test_a_folder_without_an_lmdb_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match="not an LMDB"):
        layer_of(data(tmp_path))


@needs_leveldb
def test_a_folder_without_a_leveldb_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match="not a LevelDB"):
        layer_of(data(tmp_path).replace("backend: LMDB", ""))


@pytest.mark.parametrize("share", [0.9, 0.5, 0.01])
def test_a_database_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    path = write_images(tmp_path / "db", [np.zeros((3, 64, 64), np.uint8)] * 20)
    file = path / "data.mdb"
    with file.open("r+b") as stream:
        stream.truncate(int(file.stat().st_size * share))
    with pytest.raises(LayerError, match=r"cut short|not an LMDB"):
        layer_of(data(path))


def test_a_missing_batch_size_or_source_is_refused(seven: Path) -> None:
    with pytest.raises(LayerError, match="batch_size"):
        layer_of(data(seven, batch=0))
    with pytest.raises(LayerError, match="source"):
        layer_of('name: "d" type: "Data" top: "x" data_param { batch_size: 1 }')


def test_a_batch_beyond_all_bounds_is_refused(seven: Path) -> None:
    with pytest.raises(LayerError, match=r"2\^31"):
        layer_of(data(seven, batch=4_000_000_000))
