"""convert_imageset, compute_image_mean and extract_features."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import lmdb
import numpy as np
import pytest
import torch

from caffe_tests.data.records import BACKENDS, write_images
from sirtaki_caffe.commands.tools import compute_image_mean, convert_imageset, extract_features
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.blobs import read_mean
from sirtaki_caffe.proto.schema import TEST, Datum
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import write_weights
from tests import needs

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for number in range(3):
        cv2.imwrite(str(tmp_path / f"{number}.png"), PIXELS // (number + 1))
    (tmp_path / "list.txt").write_text("".join(f"{n}.png {n + 5}\n" for n in range(3)))
    return tmp_path


def convert(images: Path, *flags: str) -> dict[bytes, Any]:
    """The records that convert_imageset makes of the images."""
    arguments = [*flags, f"{images}/", str(images / "list.txt"), str(images / "db")]
    assert convert_imageset.main(arguments) == 0
    if "--backend=leveldb" in flags:
        with closing(needs.package("plyvel").DB(str(images / "db"))) as database:
            return {key: Datum.FromString(value) for key, value in database}
    with lmdb.open(str(images / "db"), readonly=True) as env, env.begin() as transaction:
        return {key: Datum.FromString(value) for key, value in transaction.cursor()}


def pixels(datum: Any) -> np.ndarray:
    shape = (datum.channels, datum.height, datum.width)
    return np.frombuffer(datum.data, np.uint8).reshape(shape).transpose(1, 2, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_images_become_records_in_the_order_of_the_list(images: Path, backend: str) -> None:
    records = convert(images, f"--backend={backend}")
    assert list(records) == [b"00000000_0.png", b"00000001_1.png", b"00000002_2.png"]
    assert [datum.label for datum in records.values()] == [5, 6, 7]
    assert np.array_equal(pixels(records[b"00000001_1.png"]), PIXELS // 2)


def test_images_become_gray_and_of_another_size(images: Path) -> None:
    records = convert(images, "-gray", "-resize_width=4", "--resize_height", "3")
    gray = cv2.imread(str(images / "0.png"), cv2.IMREAD_GRAYSCALE)
    got = pixels(records[b"00000000_0.png"])
    assert np.abs(cv2.resize(gray, (4, 3)).astype(int) - got[:, :, 0]).max() <= 1


def test_encoded_records_are_the_files_themselves(images: Path) -> None:
    record = convert(images, "--encoded", "--nogray")[b"00000000_0.png"]
    assert record.encoded
    assert record.data == (images / "0.png").read_bytes()


def test_encoded_records_of_another_type_are_made_anew(images: Path) -> None:
    record = convert(images, "--encoded=true", "--encode_type=jpg")[b"00000000_0.png"]
    assert record.data.startswith(b"\xff\xd8")


def test_shuffled_records_are_the_same(images: Path) -> None:
    labels = [datum.label for datum in convert(images, "--shuffle").values()]
    assert sorted(labels) == [5, 6, 7]


def test_an_image_that_cannot_be_read_is_left_out_and_named(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "1.png").write_text("no image")
    assert [datum.label for datum in convert(images).values()] == [5, 7]
    output = capsys.readouterr()
    assert "1.png" in output.err
    assert "Processed 2 files." in output.out


def test_sizes_are_checked_where_asked_and_nothing_is_left(images: Path) -> None:
    cv2.imwrite(str(images / "1.png"), PIXELS[1:])
    with pytest.raises(CaffeError, match=r"1\.png has 120 bytes"):
        convert(images, "--check_size")
    assert sorted(file.name for file in images.iterdir()) == ["0.png", "1.png", "2.png", "list.txt"]


def test_a_database_is_not_overwritten(images: Path) -> None:
    convert(images)
    with pytest.raises(CaffeError, match="db is there already"):
        convert(images)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mean_is_that_of_all_images(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = np.random.default_rng(1).integers(0, 256, (20, 2, 3, 4), np.uint8)
    path = write_images(tmp_path / "db", list(drawn), backend)
    out = tmp_path / "mean.binaryproto"
    assert compute_image_mean.main([f"--backend={backend}", str(path), str(out)]) == 0
    assert np.allclose(read_mean(out), drawn.mean(0), atol=1e-4)
    lines = capsys.readouterr().out.splitlines()
    channel = drawn[:, 1].mean()
    assert lines[-1] == f"mean_value channel [1]: {channel:g}"


def test_a_mean_of_images_of_several_sizes_is_refused(tmp_path: Path) -> None:
    path = write_images(
        tmp_path / "db", [np.zeros((1, 2, 2), np.uint8), np.zeros((1, 2, 3), np.uint8)]
    )
    with pytest.raises(CaffeError, match=r"db, record b'00000001'.*shape"):
        compute_image_mean.main([str(path)])


def test_a_mean_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaffeError, match="no records"):
        compute_image_mean.main([str(write_images(tmp_path / "db", []))])


NET = """layer {{ name: "d" type: "Data" top: "data" top: "label"
  data_param {{ source: "{}" batch_size: 2 backend: LMDB }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "s" type: "Silence" bottom: "label" }}"""


def test_features_are_the_blobs_item_by_item(tmp_path: Path) -> None:
    drawn = np.random.default_rng(2).integers(0, 256, (4, 1, 2, 2), np.uint8)
    source = write_images(tmp_path / "db", list(drawn))
    (tmp_path / "net.prototxt").write_text(NET.format(source))
    net = Net(read_net(tmp_path / "net.prototxt"), phase=TEST)
    write_weights(tmp_path / "w.caffemodel", net.proto, net.saved())
    weights = net.layers[1].params[0].data.detach()
    net.layers[0].close()
    arguments = [tmp_path / "w.caffemodel", tmp_path / "net.prototxt", "ip,data"]
    arguments += [f"{tmp_path}/ip,{tmp_path}/data", 2, "lmdb", "GPU", "DEVICE_ID=0"]
    assert extract_features.main([str(a) for a in arguments]) == 0
    with lmdb.open(str(tmp_path / "ip"), readonly=True) as env, env.begin() as transaction:
        records = [(key, Datum.FromString(value)) for key, value in transaction.cursor()]
    assert [key for key, _ in records] == [b"%010d" % n for n in range(4)]
    expected = torch.tensor(drawn.reshape(4, 4)).float() @ weights.T
    for row, (_, datum) in zip(expected, records, strict=True):
        assert (datum.channels, datum.height, datum.width) == (3, 1, 1)
        assert torch.allclose(torch.tensor(list(datum.float_data)), row, atol=1e-3)
    with lmdb.open(str(tmp_path / "data"), readonly=True) as env:
        assert env.stat()["entries"] == 4


def test_an_unknown_blob_is_named(tmp_path: Path) -> None:
    source = write_images(tmp_path / "db", [np.zeros((1, 2, 2), np.uint8)])
    (tmp_path / "net.prototxt").write_text(NET.format(source))
    arguments = ["w", str(tmp_path / "net.prototxt"), "fc8", "out", "1", "lmdb"]
    with pytest.raises(CaffeError, match="no blob fc8; it has data, label, ip"):
        extract_features.main(arguments)
