"""DetectionOutput and DetectionEvaluate, against numbers found by hand and OpenCV's importer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import build
from sirtaki_caffe.errors import LayerError

TRUTH = [
    (0, 1, 0, 0.1, 0.1, 0.3, 0.3, 0),
    (0, 1, 1, 0.5, 0.5, 0.7, 0.7, 1),
    (0, 2, 0, 0.1, 0.6, 0.3, 0.9, 0),
    (1, 1, 0, 0.2, 0.2, 0.6, 0.6, 0),
]
FOUND = [
    (0, 1, 0.9, 0.1, 0.1, 0.28, 0.3),
    (0, 1, 0.8, 0.11, 0.1, 0.3, 0.32),
    (0, 1, 0.7, 0.5, 0.52, 0.7, 0.7),
    (0, 2, 0.6, 0.1, 0.6, 0.2, 0.7),
    (1, 1, 0.5, 0.25, 0.2, 0.6, 0.6),
    (1, 3, 0.4, 0.1, 0.1, 0.2, 0.2),
]
ROWS = [
    (-1, 1, 2, -1, -1),
    (-1, 2, 1, -1, -1),
    (-1, 3, 0, -1, -1),
    (0, 1, 0.9, 1, 0),
    (0, 1, 0.8, 0, 1),
    (0, 1, 0.7, 0, 0),
    (0, 2, 0.6, 0, 1),
    (1, 1, 0.5, 1, 0),
    (1, 3, 0.4, 0, 1),
]


def evaluated(fields: str, found: list[tuple[float, ...]] = FOUND) -> np.ndarray:
    rows, truth = np.array([[found]]), np.array([[TRUTH]])
    text = f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: 4 {fields} }}'
    built = build(text, rows.shape, truth.shape)
    with torch.no_grad():
        (top,) = built.forward([torch.from_numpy(rows), torch.from_numpy(truth)])
    return top[0, 0].numpy()


def test_detections_are_right_wrong_or_left_out() -> None:
    np.testing.assert_allclose(evaluated("evaluate_difficult_gt: false"), ROWS)


def test_difficult_boxes_may_count() -> None:
    rows = evaluated("")
    assert rows[0].tolist() == [-1, 1, 3, -1, -1]
    np.testing.assert_allclose(rows[5], (0, 1, 0.7, 1, 0))


def test_sizes_make_overlaps_those_of_pixels(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes"
    sizes.write_text("a 100 200\nb 100 200\n")
    fields = f'evaluate_difficult_gt: false name_size_file: "{sizes}" overlap_threshold: '
    assert evaluated(fields + "0.9024")[3, 3] == 1
    assert evaluated(fields + "0.9025")[3, 3] == 0
    assert evaluated(fields.split("name")[0] + "overlap_threshold: 0.9001")[3, 3] == 0


def test_an_empty_batch_has_rows_of_classes_alone() -> None:
    rows = evaluated("", [(0, -1, -1, -1, -1, -1, -1), (1, -1, -1, -1, -1, -1, -1)])
    assert rows[:, :3].tolist() == [[-1, 1, 3], [-1, 2, 1], [-1, 3, 0]]


PRIORS = np.array(
    [
        (0.1, 0.1, 0.4, 0.4),
        (0.12, 0.1, 0.42, 0.4),
        (0.2, 0.1, 0.5, 0.4),
        (0.6, 0.6, 0.9, 0.9),
        (0.6, 0.6, 0.9, 0.85),
        (0.25, 0.1, 0.55, 0.4),
    ]
)
SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.01, 0.75])


def output(
    fields: str, loc: np.ndarray, conf: np.ndarray, message: str = "num_classes: 2"
) -> np.ndarray:
    blob = np.stack([PRIORS.reshape(-1), np.full(PRIORS.size, 0.1)])[None]
    text = f'type: "DetectionOutput" detection_output_param {{ {message} {fields} }}'
    built = build(text, loc.shape, conf.shape, blob.shape)
    with torch.no_grad():
        (top,) = built.forward([torch.from_numpy(b) for b in (loc, conf, blob)])
    return top[0, 0].numpy()


CONF = np.stack([1 - SCORES, SCORES], 1).reshape(1, -1)
NMS = "nms_param { nms_threshold: 0.45 } "


def test_the_best_boxes_of_a_class_are_left_in_order() -> None:
    rows = output(NMS + "confidence_threshold: 0.05", np.zeros((1, 24)), CONF)
    np.testing.assert_allclose(rows[:, :3], [(0, 1, 0.9), (0, 1, 0.75), (0, 1, 0.6)])
    np.testing.assert_allclose(rows[:, 3:], PRIORS[[0, 5, 3]])


def test_of_an_image_the_best_of_all_classes_are_kept_by_class() -> None:
    conf = np.stack([np.zeros(6), SCORES, SCORES[::-1]], 1).reshape(1, -1)
    fields = NMS + "confidence_threshold: 0.05 keep_top_k: 3"
    rows = output(fields, np.zeros((1, 24)), conf, "num_classes: 3")
    np.testing.assert_allclose(rows[:, :3], [(0, 1, 0.9), (0, 2, 0.9), (0, 2, 0.8)][: len(rows)])
    assert len(rows) == 3


def test_an_empty_batch_has_a_row_for_each_image() -> None:
    rows = output("confidence_threshold: 2", np.zeros((2, 24)), np.repeat(CONF, 2, 0))
    assert rows.tolist() == [[0, *[-1] * 6], [1, *[-1] * 6]]


MAP = 'item { name: "none" label: 0 } item { name: "cat" label: 1 }'


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("VOC", "p_cat.txt", "a 0.9 20 10 80 40\na 0.6 120 60 180 90\n"),
        ("ILSVRC", "p_.txt", "a 1 0.9 20 10 80 40\na 1 0.6 120 60 180 90\n"),
    ],
)
def test_detections_are_written_when_all_images_were_seen(
    tmp_path: Path, kind: str, name: str, text: str
) -> None:
    folder = saved(tmp_path, kind)
    assert (folder / name).read_text() == text


def saved(tmp_path: Path, kind: str) -> Path:
    (tmp_path / "map").write_text(MAP)
    (tmp_path / "sizes").write_text("a 100 200\n")
    fields = (
        f'output_directory: "{tmp_path}/out" output_name_prefix: "p_" output_format: "{kind}" '
        f'label_map_file: "{tmp_path}/map" name_size_file: "{tmp_path}/sizes"'
    )
    fields = f"{NMS} confidence_threshold: 0.05 top_k: 9 save_output_param {{ {fields} }}"
    conf = CONF.copy()
    conf[0, 11] = 0.04
    output(fields.replace("top_k: 9", ""), np.zeros((1, 24)), conf)
    return tmp_path / "out"


def test_detections_are_written_as_coco_has_them(tmp_path: Path) -> None:
    found = json.loads((saved(tmp_path, "COCO") / "p_.json").read_text())
    assert found[0] == {
        "image_id": "a",
        "category_id": "cat",
        "bbox": [20, 10, 60, 30],
        "score": pytest.approx(0.9),
    }


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("nms_param { eta: 0 }", "0 < eta <= 1"),
        ("nms_param { nms_threshold: -1 }", "nms_threshold >= 0"),
        ("visualize: true", "visualize is not supported"),
    ],
)
def test_fields_that_make_no_sense_are_named(fields: str, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        output(fields, np.zeros((1, 24)), CONF)


def test_detections_are_those_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        pytest.skip("this OpenCV reads no Caffe nets")
    random = np.random.default_rng(1)
    loc = random.standard_normal((1, 24)).astype(np.float32)
    conf = random.uniform(0, 1, (1, 18)).astype(np.float32)
    fields = (
        "num_classes: 3 share_location: true background_label_id: 0 code_type: CENTER_SIZE "
        "nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 5 confidence_threshold: 0.1"
    )
    blob = np.stack([PRIORS.reshape(-1), np.full(PRIORS.size, 0.1)])[None].astype(np.float32)
    shapes = "".join(
        f'input: "{name}" input_shape {{ {" ".join(f"dim: {n}" for n in array.shape)} }} '
        for name, array in (("loc", loc), ("conf", conf), ("prior", blob))
    )
    layer = (
        'layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" '
        f'top: "out" detection_output_param {{ {fields} clip: false }} }}'
    )
    net = cv2.dnn.readNetFromCaffe(
        np.frombuffer(f'name: "n" {shapes} {layer}'.encode(), np.uint8), np.zeros(0, np.uint8)
    )
    for name, array in (("loc", loc), ("conf", conf), ("prior", blob)):
        net.setInput(array, name)
    theirs = net.forward()[0, 0]
    mine = output(fields.removeprefix("num_classes: 3"), loc, conf, "num_classes: 3")
    theirs = theirs[np.lexsort((-theirs[:, 2], theirs[:, 1]))]
    np.testing.assert_allclose(mine, theirs[: len(mine)], atol=1e-5)
