"""AnnotatedData: labels, augmentations, and records that cannot be used."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from caffe_tests.data.records import layer_of, numbered, write_images
from caffe_tests.ssd.shapes import record, write_records
from sirtaki_caffe.data.annotated.boxes import Boxes
from sirtaki_caffe.data.annotated.distortion import distorted, from_hsv, to_hsv
from sirtaki_caffe.data.annotated.preparing import Preparing, fitted
from sirtaki_caffe.data.annotated.sampling import sample
from sirtaki_caffe.data.transform import Transformer
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import World
from sirtaki_caffe.proto.schema import TRAIN, TransformationParameter, message_class

BOX = (1, 0.25, 0.25, 0.5, 0.75)


def text(path: Path, batch: int = 2, more: str = "", transform: str = "") -> str:
    return (
        'name: "d" type: "AnnotatedData" top: "data" top: "label" '
        f'data_param {{ source: "{path}" batch_size: {batch} backend: LMDB }} '
        f"annotated_data_param {{ {more} }} transform_param {{ {transform} }}"
    )


def labels(source: str, batches: int = 1, **context: Any) -> list[list[list[float]]]:
    with closing(layer_of(source, **context)) as layer:
        return [layer.forward([])[1][0, 0].tolist() for _ in range(batches)]


def test_labels_are_the_boxes_of_the_batch(tmp_path: Path) -> None:
    other = (2, 0, 0, 1, 0.5)
    path = write_records(tmp_path / "db", [record([BOX, other]), record([]), record([other])])
    found = labels(text(path), 2)
    assert found[0] == [[0, 1, 0, 0.25, 0.25, 0.5, 0.75, 0], [0, 2, 0, 0, 0, 1, 0.5, 0]]
    assert found[1][0] == [0, 2, 0, 0, 0, 1, 0.5, 0]
    assert [row[0] for row in found[1]] == [0, 1, 1]


def test_a_batch_without_boxes_has_a_row_of_minus_one(tmp_path: Path) -> None:
    path = write_records(tmp_path / "db", [record([]), record([])])
    assert labels(text(path)) == [[[-1] * 8]]


def test_processes_take_the_records_in_turn(tmp_path: Path) -> None:
    records = [record([(label, 0, 0, 1, 1)]) for label in range(1, 5)]
    path = write_records(tmp_path / "db", records)
    for rank, expected in enumerate(([1, 3], [2, 4])):
        (rows,) = labels(text(path), world=World(rank, 2))
        assert [row[1] for row in rows] == expected


def test_mirrored_images_have_mirrored_boxes(tmp_path: Path) -> None:
    path = write_records(tmp_path / "db", [record([(1, 0.25, 0, 0.5, 1)])] * 20)
    (rows,) = labels(text(path, 20, transform="mirror: true"))
    assert {tuple(row[3:7]) for row in rows} == {(0.25, 0, 0.5, 1), (0.5, 0, 0.75, 1)}


SSD_TRANSFORM = (
    "mirror: true mean_value: [104, 117, 123] resize_param { prob: 1 resize_mode: WARP height: 20 "
    "width: 24 interp_mode: [LINEAR, AREA, NEAREST, CUBIC, LANCZOS4] } "
    "emit_constraint { emit_type: CENTER } "
    "distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 "
    "contrast_lower: 0.5 contrast_upper: 1.5 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 "
    "saturation_lower: 0.5 saturation_upper: 1.5 random_order_prob: 0.0 } "
    "expand_param { prob: 0.5 max_expand_ratio: 4.0 }"
)
SSD_SAMPLERS = "batch_sampler { max_sample: 1 max_trials: 1 } " + " ".join(
    "batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 "
    f"max_aspect_ratio: 2 }} sample_constraint {{ {limit} }} max_sample: 1 max_trials: 50 }}"
    for limit in (
        *(f"min_jaccard_overlap: {overlap}" for overlap in (0.1, 0.3, 0.5, 0.7, 0.9)),
        "max_jaccard_overlap: 1.0",
    )
)


def test_what_ssd_draws_keeps_the_boxes_on_what_they_show(tmp_path: Path) -> None:
    """A bright box on black ground: what lies in the box stays brighter than what lies outside."""
    pixels = np.zeros((3, 40, 40), np.uint8)
    pixels[:, 10:30, 10:30] = 255
    path = write_records(tmp_path / "db", [record([(1, 0.25, 0.25, 0.75, 0.75)], pixels)] * 30)
    plain = SSD_TRANSFORM.replace("mean_value: [104, 117, 123]", "")
    with closing(layer_of(text(path, 30, SSD_SAMPLERS, plain))) as layer:
        images, label = layer.forward([])
    assert images.shape == (30, 3, 20, 24)
    rows = label[0, 0].numpy()
    assert len({tuple(row[3:7]) for row in rows}) > 15
    assert (rows[:, 3:7] >= 0).all()
    assert (rows[:, 3:7] <= 1).all()
    for image, _, _, left, top, right, bottom, _ in rows:
        shown = images[int(image)].numpy().mean(0)
        rows_of, columns = (np.arange(size) + 0.5 for size in shown.shape)
        down = (rows_of > bottom * 20 + 2) | (rows_of < top * 20 - 2)
        inside = shown[int(top * 20 + bottom * 20) // 2, int(left * 24 + right * 24) // 2]
        assert inside > 60
        assert not down.any() or shown[down].max() < inside
        assert len(columns) == 24


@pytest.mark.parametrize(
    ("mode", "corners"),
    [
        ("WARP", (0.25, 0.25, 0.5, 0.75)),
        # 40 x 20 into 20 x 20: 10 rows, 5 above.
        ("FIT_LARGE_SIZE_AND_PAD", (0.25, 0.375, 0.5, 0.625)),
    ],
)
def test_boxes_follow_the_size(mode: str, corners: tuple[float, ...]) -> None:
    param = message_class("ResizeParameter")()
    text_format.Merge(f"resize_mode: {mode} height: 20 width: 20 pad_value: 7", param)
    boxes = Boxes(np.array([BOX[1:]]), np.zeros((1, 3)))
    random = np.random.default_rng(0)
    image, found = fitted(np.zeros((3, 20, 40), np.uint8), boxes, param, random)
    assert image.shape == (3, 20, 20)
    np.testing.assert_allclose(found.corners[0], corners)
    assert (image[:, 0] == (0 if mode == "WARP" else 7)).all()


def test_a_crop_keeps_the_boxes_whose_centre_it_has() -> None:
    part = np.array([0.5, 0, 1, 1])
    boxes = Boxes(np.array([(0.4, 0, 0.7, 1), (0.2, 0, 0.6, 1)]), np.array([(1, 0, 0), (2, 0, 0)]))
    centre = message_class("EmitConstraint")()
    seen = boxes.seen_from(part, centre)
    np.testing.assert_allclose(seen.corners, [(0, 0, 0.4, 1)], atol=1e-12)
    assert seen.kinds[:, 0].tolist() == [1]
    assert len(boxes.seen_from(part).corners) == 2
    overlap = message_class("EmitConstraint")(emit_type=1, emit_overlap=0.3)
    assert boxes.seen_from(part, overlap).kinds[:, 0].tolist() == [1]


def test_samples_satisfy_their_constraint() -> None:
    sampler = message_class("BatchSampler")()
    text_format.Merge(
        "sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } "
        "sample_constraint { min_object_coverage: 1 } max_sample: 1 max_trials: 200",
        sampler,
    )
    corners = np.array([(0.4, 0.4, 0.6, 0.6)])
    for seed in range(20):
        part = sample([sampler], corners, np.random.default_rng(seed))
        assert part is not None
        assert (part[:2] <= 0.4).all()
        assert (part[2:] >= 0.6).all()
    assert sample([sampler], np.zeros((0, 4)), np.random.default_rng(0)) is None


def test_hues_are_those_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(0).integers(0, 256, (3, 30, 30)).astype(np.uint8)
    theirs = cv2.cvtColor(np.ascontiguousarray(image.transpose(1, 2, 0)), cv2.COLOR_BGR2HSV)
    mine = np.stack(to_hsv(image), 2).astype(int)
    off = np.abs(mine - theirs)
    off[..., 0] = np.minimum(off[..., 0], 180 - off[..., 0])
    assert off.max() <= 1
    back = cv2.cvtColor(theirs, cv2.COLOR_HSV2BGR).transpose(2, 0, 1).astype(int)
    own = from_hsv(*(theirs[..., k] for k in range(3))).astype(int)
    assert np.abs(own - back).max() <= 1


def test_a_distortion_of_chance_0_changes_nothing() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 5)).astype(np.uint8)
    param = message_class("DistortionParameter")()
    np.testing.assert_array_equal(distorted(image, param, np.random.default_rng(1)), image)
    param.brightness_prob, param.brightness_delta = 1, 32
    changed = distorted(image, param, np.random.default_rng(1)).astype(int) - image
    assert len(np.unique(changed[(image > 40) & (image < 200)])) == 1


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ((1, 0.5, 0.1, 0.5, 0.2), r"0000'*.*box \(0.5 0.1 0.5 0.2\) without area"),
        ((1, 0.5, 0.3, 0.7, 0.2), r"box \(0.5 0.3 0.7 0.2\) without area: mend the annotation"),
        ((1, 1.5, 0.1, 1.7, 0.2), r"box \(1.5 0.1 1.7 0.2\) outside of the image"),
        ((1, float("nan"), 0, 1, 1), r"that is no number"),
        ((9, 0, 0, 1, 1), r"label 9, which the label map does not have"),
    ],
)
def test_boxes_that_cannot_be_are_named_with_layer_and_record(
    tmp_path: Path, broken: tuple[float, ...], why: str
) -> None:
    (tmp_path / "map").write_text('item { name: "cat" label: 1 }')
    path = write_records(tmp_path / "db", [record([broken])])
    with pytest.raises(LayerError, match=rf"layer 'd' \(AnnotatedData\).*{why}"):
        labels(text(path, more=f'label_map_file: "{tmp_path}/map"'))


def test_a_database_of_plain_records_is_named(tmp_path: Path) -> None:
    path = write_images(tmp_path / "plain", numbered(2))
    with pytest.raises(LayerError, match=r"holds a plain Datum; use the layer Data"):
        labels(text(path))


def test_images_without_type_have_one_label(tmp_path: Path) -> None:
    plain = record([])
    plain.ClearField("type")
    plain.datum.label = 4
    path = write_records(tmp_path / "db", [plain, plain])
    with closing(layer_of(text(path))) as layer:
        assert layer.forward([])[1].tolist() == [[[[4]]], [[[4]]]]


@pytest.mark.parametrize(
    ("transform", "samplers", "why"),
    [
        ("expand_param { max_expand_ratio: 1 }", "", "max_expand_ratio must be above 1"),
        ("distort_param { contrast_lower: 2 }", "", "contrast_lower <= contrast_upper"),
        ("distort_param { hue_delta: -1 }", "", "hue_delta must be 0 or more"),
        ("noise_param { clahe: true }", "", "clahe is not supported"),
        ("resize_param { height: 3 }", "", "height and width are needed"),
        ("", "batch_sampler { sampler { max_scale: 2 } }", "max_scale <= 1"),
    ],
)
def test_fields_that_make_no_sense_are_named(
    tmp_path: Path, transform: str, samplers: str, why: str
) -> None:
    path = write_records(tmp_path / "db", [record([BOX])])
    with pytest.raises(LayerError, match=why):
        labels(text(path, more=samplers, transform=transform))


def test_an_expanded_image_lies_on_the_mean() -> None:
    param = text_format.Parse(
        "mean_value: [10, 20, 30] expand_param { prob: 1 max_expand_ratio: 3 }",
        TransformationParameter(),
    )
    preparing = Preparing(param, [], Transformer(param, TRAIN, np.dtype("f4")))
    boxes = Boxes(np.array([(0.0, 0, 1, 1)]), np.zeros((1, 3)))
    image = np.full((3, 20, 20), 200, np.uint8)
    cut, left = preparing.made(image, boxes, True, np.random.default_rng(4))
    height, width = cut.pixels.shape[1:]
    bright = np.argwhere(cut.pixels[0] == 200)
    found = [*bright.min(0)[::-1], *(bright.max(0)[::-1] + 1)]
    np.testing.assert_allclose(left.corners[0] * np.array([width, height] * 2), found)
    ground = cut.pixels[:, cut.pixels[0] != 200]
    assert (ground == np.array([[10], [20], [30]])).all()
