"""Records of images with a drawn rectangle each, and a small detector for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.data.annotated.records import AnnotatedDatum
from sirtaki_caffe.data.images import encode_image
from sirtaki_caffe.data.stores.databases import write_database

SIDE = 32
Box = tuple[float, ...]


def record(boxes: list[Box], pixels: np.ndarray | None = None) -> Any:
    """An AnnotatedDatum; boxes are (label, corners …)."""
    found = AnnotatedDatum(type=AnnotatedDatum.BBOX)
    if pixels is None:
        pixels = np.zeros((3, SIDE, SIDE), np.uint8)
    found.datum.data = encode_image(pixels, "png")
    found.datum.encoded = True
    found.datum.channels, found.datum.height, found.datum.width = pixels.shape
    found.datum.label = -1
    for label, *corners in boxes:
        group = found.annotation_group.add(group_label=int(label))
        box = group.annotation.add(instance_id=0).bbox
        box.xmin, box.ymin, box.xmax, box.ymax = corners
    return found


def write_records(path: Path, records: list[Any]) -> Path:
    with write_database("lmdb", path) as writer:
        for number, each in enumerate(records):
            writer.put(f"{number:08d}".encode(), each.SerializeToString())
    return path


def drawn(count: int, seed: int = 0) -> list[Any]:
    """Images with one bright rectangle: label 1 where it is wide, 2 where it is high."""
    random = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        wide = bool(random.integers(2))
        width, height = (16, 8) if wide else (8, 16)
        x, y = random.integers(0, SIDE - width + 1), random.integers(0, SIDE - height + 1)
        pixels = random.integers(0, 40, (3, SIDE, SIDE)).astype(np.uint8)
        pixels[:, y : y + height, x : x + width] = 220
        corners = [n / SIDE for n in (x, y, x + width, y + height)]
        records.append(record([(1 if wide else 2, *corners)], pixels))
    return records


def _head(classes: int = 3) -> str:
    text = ""
    for kind, outputs in (("loc", 4 * 3), ("conf", classes * 3)):
        text += f"""
layer {{ name: "{kind}0" type: "Convolution" bottom: "norm" top: "{kind}0" convolution_param {{
  num_output: {outputs} kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "{kind}1" type: "Permute" bottom: "{kind}0" top: "{kind}1"
  permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
layer {{ name: "{kind}" type: "Flatten" bottom: "{kind}1" top: "{kind}" }}"""
    return text


def net_text(train: Path, test: Path, batch: int, test_batch: int = 4) -> str:
    """A detector whose one map has 8 x 8 places with three priors."""
    data = ""
    for phase, source, size in (("TRAIN", train, batch), ("TEST", test, test_batch)):
        data += f"""
layer {{ name: "data" type: "AnnotatedData" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ mean_value: 60 scale: 0.02 }}
  data_param {{ source: "{source}" batch_size: {size} backend: LMDB }} }}"""
    convolutions, bottom = "", "data"
    for name, outputs in (("a", 12), ("b", 24)):
        convolutions += f"""
layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{
  num_output: {outputs} kernel_size: 5 stride: 2 pad: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}"""
        bottom = name
    return f"""name: "small"{data}{convolutions}
layer {{ name: "norm" type: "Normalize" bottom: "b" top: "norm" norm_param {{
  across_spatial: false channel_shared: false scale_filler {{ type: "constant" value: 10 }} }} }}
{_head()}
layer {{ name: "priors" type: "PriorBox" bottom: "norm" bottom: "data" top: "priors"
  prior_box_param {{ min_size: 11 aspect_ratio: 2 variance: [0.1, 0.1, 0.2, 0.2] }} }}
layer {{ name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "priors"
  bottom: "label" top: "loss" include {{ phase: TRAIN }} loss_param {{ normalization: VALID }}
  multibox_loss_param {{ num_classes: 3 code_type: CENTER_SIZE }} }}
layer {{ name: "reshape" type: "Reshape" bottom: "conf" top: "conf2" include {{ phase: TEST }}
  reshape_param {{ shape {{ dim: 0 dim: -1 dim: 3 }} }} }}
layer {{ name: "softmax" type: "Softmax" bottom: "conf2" top: "conf3" include {{ phase: TEST }}
  softmax_param {{ axis: 2 }} }}
layer {{ name: "flat" type: "Flatten" bottom: "conf3" top: "conf4" include {{ phase: TEST }} }}
layer {{ name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf4" bottom: "priors"
  top: "out" include {{ phase: TEST }} detection_output_param {{ num_classes: 3
  code_type: CENTER_SIZE nms_param {{ nms_threshold: 0.45 top_k: 100 }} keep_top_k: 20
  confidence_threshold: 0.05 }} }}
layer {{ name: "eval" type: "DetectionEvaluate" bottom: "out" bottom: "label"
  top: "detection_eval" include {{ phase: TEST }}
  detection_evaluate_param {{ num_classes: 3 }} }}
"""


def solver_text(net: Path, prefix: Path, iterations: int, more: str = "") -> str:
    return (
        f'net: "{net}" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: {iterations} '
        f'snapshot_prefix: "{prefix}" solver_mode: CPU random_seed: 3 eval_type: "detection" '
        f'ap_version: "11point" test_iter: 6 test_interval: {iterations} '
        f"test_initialization: false {more}"
    )
