"""ImageData and WindowData: image files that text files list."""

from __future__ import annotations

import struct
import sys
import zlib
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from caffe_tests.data.records import batches, layer_of
from sirtaki_caffe.data.stores.windows import Window, warp
from sirtaki_caffe.errors import CaffeError, LayerError, needed
from sirtaki_caffe.layers.base import World
from sirtaki_caffe.proto.blobs import write_mean

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Five images, whose paths hold a blank."""
    for number in range(5):
        cv2.imwrite(str(tmp_path / f"image {number}.png"), PIXELS // (number + 1))
    between = (" ", "\t", " \t", "  ", "\t\t")
    lines = [f"image {number}.png{between[number]}{number + 10}" for number in range(5)]
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "list.txt"


def image_data(path: Path, more: str = "batch_size: 2", transform: str = "") -> str:
    return (
        'name: "i" type: "ImageData" top: "data" top: "label" '
        f'image_data_param {{ source: "{path}" root_folder: "{path.parent}/" {more} }} '
        f"transform_param {{ {transform} }}"
    )


def test_images_come_as_listed_and_round_again(listed: Path) -> None:
    with closing(layer_of(image_data(listed))) as layer:
        assert layer.shapes([]) == [(2, 3, 12, 10), (2,)]
        assert batches(layer, 3) == [[10, 11], [12, 13], [14, 10]]


def test_pixels_are_bgr_as_opencv_reads_them(listed: Path) -> None:
    with closing(layer_of(image_data(listed))) as layer:
        assert np.array_equal(layer.forward([])[0][0].numpy(), PIXELS.transpose(2, 0, 1))


def test_jpegs_are_as_opencv_reads_them(tmp_path: Path) -> None:
    smooth = cv2.resize(PIXELS, (100, 80), interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(tmp_path / "a.jpg"), smooth)
    (tmp_path / "list.txt").write_text("a.jpg 0")
    with closing(layer_of(image_data(tmp_path / "list.txt", ""))) as layer:
        got = layer.forward([])[0][0].numpy().transpose(1, 2, 0)
    assert np.abs(cv2.imread(str(tmp_path / "a.jpg")).astype(int) - got).max() <= 2


def test_gray_images_have_one_channel(listed: Path) -> None:
    with closing(layer_of(image_data(listed, "is_color: false"))) as layer:
        got = layer.forward([])[0][0, 0].numpy()
    expected = cv2.imread(str(listed.parent / "image 0.png"), cv2.IMREAD_GRAYSCALE)
    assert np.abs(expected.astype(int) - got).max() <= 1


def test_sixteen_bits_are_cut_to_eight(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), PIXELS[:, :, 0].astype(np.uint16) * 256 + 7)
    (tmp_path / "list.txt").write_text("a.png 0")
    with closing(layer_of(image_data(tmp_path / "list.txt", "is_color: false"))) as layer:
        assert np.array_equal(layer.forward([])[0][0, 0].numpy(), PIXELS[:, :, 0])


def test_images_are_resized_bilinearly(listed: Path) -> None:
    with closing(layer_of(image_data(listed, "new_height: 20 new_width: 7"))) as layer:
        got = layer.forward([])[0][0].numpy().transpose(1, 2, 0)
    assert np.abs(cv2.resize(PIXELS, (7, 20)).astype(int) - got).max() <= 1


def test_lists_are_shuffled_anew_each_time_round(listed: Path) -> None:
    with closing(layer_of(image_data(listed, "batch_size: 5 shuffle: true"))) as layer:
        rounds = batches(layer, 8)
    assert all(sorted(labels) == [10, 11, 12, 13, 14] for labels in rounds)
    assert len({tuple(labels) for labels in rounds}) > 1


def test_rand_skip_begins_below_it(listed: Path) -> None:
    first = set()
    for seed in range(30):
        text = image_data(listed, "rand_skip: 3")
        with closing(layer_of(text, shared_seed=seed)) as layer:
            first.add(batches(layer, 1)[0][0])
    assert first == {10, 11, 12}


def test_lines_are_dealt_to_the_processes(listed: Path) -> None:
    with closing(layer_of(image_data(listed), world=World(1, 2))) as layer:
        assert batches(layer, 3) == [[11, 13], [10, 12], [14, 11]]


def test_a_run_goes_on_where_another_stood(listed: Path) -> None:
    text = image_data(listed, "batch_size: 3 shuffle: true rand_skip: 5", "crop_size: 4")
    with closing(layer_of(text, shared_seed=1)) as layer:
        batches(layer, 2)
        position = layer.position()
        expected = [layer.forward([])[0] for _ in range(4)]
    with closing(layer_of(text, shared_seed=2)) as layer:
        layer.restore(position)
        assert all(torch.equal(layer.forward([])[0], images) for images in expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("image 0.png 1\nalone\n", "line 2: 'alone': a path, a blank and a label"),
        ("image 0.png one\n", "line 1: 'one': no whole number"),
        ("\n\n", "lists no images"),
        ("nowhere.png 1\n", "line 1: .*nowhere.png: No such file"),
        ("list.txt 1\n", "line 1: .*list.txt: an image that cannot be decoded"),
    ],
)
def test_a_bad_line_is_named(listed: Path, text: str, why: str) -> None:
    listed.write_text(text)
    with pytest.raises(LayerError, match=why):
        layer_of(image_data(listed))


def test_an_image_that_is_gone_later_is_named(listed: Path) -> None:
    with closing(layer_of(image_data(listed))) as layer:
        (listed.parent / "image 1.png").unlink()
        with pytest.raises(LayerError, match=r"'i'.*line 2: .*image 1.png"):
            layer.forward([])


def test_images_of_other_sizes_need_a_crop(listed: Path) -> None:
    cv2.imwrite(str(listed.parent / "image 1.png"), PIXELS[1:])
    refused = pytest.raises(LayerError, match=r"line 2 is of shape 3x11x10.*crop_size")
    with closing(layer_of(image_data(listed))) as layer, refused:
        layer.forward([])
    with closing(layer_of(image_data(listed, transform="crop_size: 10"))) as layer:
        assert batches(layer, 1) == [[10, 11]]
    with closing(layer_of(image_data(listed, "batch_size: 1"))) as layer:
        assert [layer.forward([])[0].shape[2] for _ in range(3)] == [12, 11, 12]


@pytest.mark.parametrize("width", [2000, 30000])
def test_an_image_of_too_many_pixels_is_refused_unread(tmp_path: Path, width: int) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), PIXELS)
    content = bytearray((tmp_path / "a.png").read_bytes())
    content[16:24] = struct.pack(">II", width, 40000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    (tmp_path / "a.png").write_bytes(content)
    (tmp_path / "list.txt").write_text("a.png 0")
    with pytest.raises(LayerError, match=rf"{width}x40000|decompression bomb"):
        layer_of(image_data(tmp_path / "list.txt"))


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match=r"list.txt: No such file"):
        layer_of(image_data(tmp_path / "list.txt"))


def test_height_and_width_go_together(listed: Path) -> None:
    with pytest.raises(LayerError, match="go together"):
        layer_of(image_data(listed, "new_height: 3"))


BOXES = """# 0
image 0.png
3
12
10
3
7 0.8 2 3 5 8
7 0.1 0 0 3 3
0 0.0 6 6 9 11
"""


def window_data(path: Path, more: str = "", transform: str = "crop_size: 4") -> str:
    return (
        'name: "w" type: "WindowData" top: "data" top: "label" '
        f'window_data_param {{ source: "{path}" root_folder: "{path.parent}/" '
        f"batch_size: 8 {more} }}"
        f"transform_param {{ {transform} }}"
    )


@pytest.fixture
def boxes(listed: Path) -> Path:
    (listed.parent / "boxes.txt").write_text(BOXES)
    return listed.parent / "boxes.txt"


def test_a_quarter_of_the_boxes_overlaps_an_object(boxes: Path) -> None:
    with closing(layer_of(window_data(boxes))) as layer:
        assert layer.shapes([]) == [(8, 3, 4, 4), (8,)]
        assert batches(layer, 2) == [[0] * 6 + [7] * 2] * 2


def test_a_box_is_warped_to_the_crop(boxes: Path) -> None:
    with closing(layer_of(window_data(boxes, "fg_fraction: 1"))) as layer:
        got = layer.forward([])[0][0].numpy().transpose(1, 2, 0)
    expected = cv2.resize(PIXELS[3:9, 2:6], (4, 4))
    assert np.abs(expected.astype(int) - got).max() <= 1


def test_surroundings_beyond_the_image_are_the_mean(boxes: Path) -> None:
    image = np.ones((3, 12, 10), np.uint8)
    pixels, inside = warp(image, Window(1, "", 1, 1.0, 0, 0, 3, 3), 8, 2, False)
    assert inside.tolist() == np.pad(np.ones((6, 6), bool), ((2, 0), (2, 0))).tolist()
    assert np.array_equal(pixels[0] == 1, inside)
    write_mean(boxes.parent / "mean", np.full((3, 20, 20), 200, np.float32))
    boxes.write_text(BOXES.replace("2 3 5 8", "0 0 3 3"))
    text = window_data(
        boxes,
        "fg_fraction: 1 context_pad: 2",
        f'crop_size: 8 mean_file: "{boxes.parent}/mean"',
    )
    with closing(layer_of(text)) as layer:
        got = layer.forward([])[0][0]
    assert torch.all(got[:, :2] == 0)
    assert torch.all(got[:, :, :2] == 0)
    assert torch.any(got[:, 2:, 2:] != 0)


def test_a_square_keeps_the_proportions() -> None:
    image = np.zeros((1, 20, 20), np.uint8)
    image[:, 8:12, 4:16] = 255
    pixels, _ = warp(image, Window(1, "", 1, 1.0, 4, 8, 15, 11), 12, 0, True)
    assert np.array_equal(pixels[0] == 255, image[0, 4:16, 4:16] == 255)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOXES.replace("7 0.8 2 3 5 8\n", ""), "line 1: what begins here"),
        (BOXES.replace("# 0\n", ""), "line 1"),
        (BOXES.replace("0.8", "high"), "line 1"),
        (BOXES.replace("0.8", "0.4"), "no box of overlap 0.5 or more"),
        (
            BOXES.replace("6 6 9 11", "60 60 90 110").replace("7 0.1 0 0 3 3", "0 0 50 50 60 60"),
            "outside",
        ),
    ],
)
def test_bad_boxes_are_named(boxes: Path, text: str, why: str) -> None:
    boxes.write_text(text)
    with pytest.raises(LayerError, match=why):
        layer_of(window_data(boxes))


@pytest.mark.parametrize(("module", "package"), [("PIL.Image", "pillow"), ("lmdb", "lmdb")])
def test_a_package_that_is_missing_is_named_as_pip_calls_it(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CaffeError, match=f"is needed: pip install {package} "):
        needed(module)
