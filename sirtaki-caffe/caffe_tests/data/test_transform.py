"""What transform_param makes of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

from sirtaki_caffe.data.order import draws
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.data.transform import Transformer
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import write_mean
from sirtaki_caffe.proto.schema import TEST, TRAIN, TransformationParameter

IMAGE = np.random.default_rng(0).integers(0, 256, (3, 7, 9), np.uint8)


def transformer(text: str, phase: int = TRAIN) -> Transformer:
    param = text_format.Parse(text, TransformationParameter())
    return Transformer(param, phase, np.dtype("f4"))


def transformed(text: str, image: np.ndarray = IMAGE, phase: int = TRAIN) -> Iterator[np.ndarray]:
    """The image again and again, as item 0, 1, 2, …"""
    made = transformer(text, phase)
    for number in range(200):
        yield made.numbers([made.cut(image, draws(0, number))])[0]


def places(text: str, phase: int = TRAIN) -> set[tuple[int, int, bool]]:
    """Where 4x5 pixels that were cut out of the image come from, and whether they are mirrored."""
    found = set()
    for cut in transformed(text, phase=phase):
        fits = [
            (top, left, mirrored)
            for top in range(4)
            for left in range(5)
            for mirrored in (False, True)
            if np.array_equal(
                cut[:, :, :: -1 if mirrored else 1], IMAGE[:, top : top + 4, left : left + 5]
            )
        ]
        found.add(*fits) if len(fits) == 1 else pytest.fail(f"{len(fits)} fits")
    return found


def test_without_fields_pixels_stay() -> None:
    assert np.array_equal(next(transformed("")), IMAGE)


def test_random_crops_reach_every_place_both_ways() -> None:
    assert places("crop_h: 4 crop_w: 5 mirror: true") == {
        (top, left, mirrored) for top in range(4) for left in range(5) for mirrored in (False, True)
    }


def test_crops_of_a_test_are_central_and_mirrored_where_asked() -> None:
    assert places("crop_h: 4 crop_w: 5", TEST) == {(1, 2, False)}
    assert places("crop_h: 4 crop_w: 5 mirror: true", TEST) == {(1, 2, False), (1, 2, True)}


def test_crop_size_is_both_sides() -> None:
    assert next(transformed("crop_size: 5")).shape == (3, 5, 5)


def test_the_mean_file_is_cropped_as_the_image_and_then_mirrored(tmp_path: Path) -> None:
    mean = np.random.default_rng(1).random((3, 7, 9), np.float32)
    write_mean(tmp_path / "mean", mean)
    text = f'mean_file: "{tmp_path}/mean" scale: 2 crop_size: 4 mirror: true'
    made, plain = transformer(text), transformer("crop_size: 4 mirror: true")
    seen = set()
    for number in range(20):
        cut = plain.cut(IMAGE, draws(0, number))
        seen.add(cut.mirrored)
        part = np.s_[:, cut.top : cut.top + 4, cut.left : cut.left + 4]
        expected = (IMAGE[part] - mean[part]) * 2
        got = made.numbers([made.cut(IMAGE, draws(0, number))])[0]
        assert np.array_equal(got, expected[:, :, ::-1] if cut.mirrored else expected)
    assert seen == {True, False}


def test_one_mean_value_is_for_all_channels_and_three_for_each() -> None:
    assert np.array_equal(next(transformed("mean_value: 10")), IMAGE - np.float32(10))
    three = next(transformed("mean_value: 1 mean_value: 2 mean_value: 3"))
    assert np.array_equal(three, IMAGE - np.array([1, 2, 3], np.float32)[:, None, None])


def test_the_mean_is_subtracted_before_scaling() -> None:
    expected = (IMAGE - np.float32(10)) * np.float32(0.25)
    assert np.array_equal(next(transformed("mean_value: 10 scale: 0.25")), expected)


def test_padding_is_black_and_cropped_with_the_image() -> None:
    padded = next(transformed("pad: 2"))
    assert padded.shape == (3, 11, 13)
    assert padded[:, :2].sum() == padded[:, :, :2].sum() == 0
    assert np.array_equal(padded[:, 2:9, 2:11], IMAGE)


def test_bgr2rgb_turns_the_channels_round() -> None:
    assert np.array_equal(next(transformed("bgr2rgb: true")), IMAGE[::-1])


def test_random_resize_draws_the_shorter_side() -> None:
    sizes = {
        cut.shape[1:] for cut in transformed("random_resize_param { min_size: 10 max_size: 12 }")
    }
    assert sizes == {(10, 13), (11, 14), (12, 15)}


def test_random_aspect_ratio_gives_crops_of_one_size_that_differ() -> None:
    text = (
        "crop_size: 6 random_aspect_ratio_param { min_area_ratio: 0.1 aspect_ratio_change: 0.75 }"
    )
    crops = list(transformed(text))
    assert {crop.shape for crop in crops} == {(3, 6, 6)}
    assert len({crop.tobytes() for crop in crops}) > 100


def test_random_aspect_ratio_of_the_whole_area_is_the_whole_image() -> None:
    text = (
        "crop_size: 8 random_aspect_ratio_param { min_area_ratio: 1 max_area_ratio: 1 } "
        "mirror: false"
    )
    square = IMAGE[:, :, :7]
    assert np.array_equal(next(transformed(text, square)), resize(square, 8, 8))


def test_random_aspect_ratio_that_never_fits_takes_the_shorter_side() -> None:
    text = "crop_size: 14 random_aspect_ratio_param { min_area_ratio: 1 max_area_ratio: 1 } "
    wide = IMAGE[:, :4, :8]
    expected = resize(wide, 14, 28)[:, :, 7:21]
    assert np.array_equal(next(transformed(text, wide, TEST)), expected)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("height: 5 width: 20", (3, 5, 20)),
        ("resize_mode: FIT_SMALL_SIZE height: 14 width: 14", (3, 14, 18)),
        ("resize_mode: FIT_LARGE_SIZE_AND_PAD height: 18 width: 18", (3, 18, 18)),
        (
            "resize_mode: FIT_LARGE_SIZE_AND_PAD height: 18 width: 18 pad_mode: MIRRORED",
            (3, 18, 18),
        ),
    ],
)
def test_resize_param_makes_the_size(text: str, shape: tuple[int, ...]) -> None:
    assert next(transformed(f"resize_param {{ {text} }}")).shape == shape


def test_padding_to_a_size_has_the_image_in_the_middle() -> None:
    text = (
        "resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 9 width: 9 "
        "pad_value: 1 pad_value: 2 pad_value: 3 }"
    )
    padded = next(transformed(text))
    assert padded[:, 0, 0].tolist() == padded[:, 8, 8].tolist() == [1, 2, 3]
    assert np.array_equal(padded[:, 1:8], IMAGE)


@pytest.mark.parametrize(
    ("how", "size"),
    [
        (how, size)
        for how in ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4")
        for size in ((50, 31), (1, 1), (120, 100), (256, 256), (300, 500))
        if how != "AREA" or size[0] <= 120
    ],
)
def test_resizing_is_opencvs(how: str, size: tuple[int, int]) -> None:
    smooth = np.random.default_rng(2).integers(0, 256, (6, 8, 3), np.uint8)
    image = cv2.resize(smooth, (161, 120), interpolation=cv2.INTER_CUBIC)
    expected = cv2.resize(image, size[::-1], interpolation=getattr(cv2, f"INTER_{how}"))
    got = resize(image.transpose(2, 0, 1), *size, how).transpose(1, 2, 0)
    assert np.abs(expected.astype(int) - got).max() <= 1


def test_floats_are_resized_as_floats() -> None:
    image = IMAGE.astype(np.float32) / 7
    expected = cv2.resize(image.transpose(1, 2, 0), (20, 13))
    assert np.allclose(resize(image, 13, 20).transpose(1, 2, 0), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("crop_size: 8", "7x9 is smaller than the crop of 8x8"),
        ("mean_value: 1 mean_value: 2", "2 mean_value for an image of 3 channels"),
        ("crop_h: 3", "go together"),
        ('mean_file: "m" mean_value: 1', "not both"),
        ("force_gray: true force_color: true", "not both"),
        ('mean_file: "/nowhere/m"', "/nowhere/m"),
        ("pad: 4000000000", "pad"),
        ("random_resize_param { min_size: 9 max_size: 8 }", "no range"),
        ("random_resize_param { min_size: 4000000 max_size: 4000000 }", "sides are 1 to"),
        ("resize_param { height: 4 }", "height and width"),
        ("resize_param { height: 4000000000 width: 4 }", "sides are 1 to"),
        ("random_aspect_ratio_param { }", "needs crop_size"),
        ("crop_size: 4 random_aspect_ratio_param { min_area_ratio: 0 }", "above 0"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, why: str) -> None:
    with pytest.raises(CaffeError, match=why):
        next(transformed(text))


def test_a_mean_of_another_size_is_named(tmp_path: Path) -> None:
    write_mean(tmp_path / "mean", np.zeros((3, 9, 7), np.float32))
    with pytest.raises(CaffeError, match=r"mean is a mean of 3x9x7, the image of 3x7x9"):
        next(transformed(f'mean_file: "{tmp_path}/mean"'))
