"""SSD with 300 x 300 pixels, from the description of Liu 2016, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caffe_tests.zoo_writer import Writer

_VGG = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_EXTRA = ((6, 256, 512, 2), (7, 128, 256, 2), (8, 128, 256, 1), (9, 128, 256, 1))
CLASSES = 21


@dataclass(frozen=True)
class Source:
    """A map that boxes are read from: its name, and the priors of each of its places."""

    name: str
    least: int
    most: int
    ratios: tuple[int, ...]
    step: int

    @property
    def priors(self) -> int:
        """How many a place has: a small and a large square, and each ratio both ways."""
        return 2 + 2 * len(self.ratios)


SOURCES = (
    Source("conv4_3_norm", 30, 60, (2,), 8),
    Source("fc7", 60, 111, (2, 3), 16),
    Source("conv6_2", 111, 162, (2, 3), 32),
    Source("conv7_2", 162, 213, (2, 3), 64),
    Source("conv8_2", 213, 264, (2,), 100),
    Source("conv9_2", 264, 315, (2,), 300),
)


def ssd300(data: str = "fed", batch: int = 1, width: int = 1) -> Writer:
    """SSD300 on VGG-16 with 21 classes; its channels divided by `width`.

    Whoever runs it feeds its labels, one row a box; with `data` "deploy" it ends with detections.
    """
    net = Writer("VGG_VOC0712_SSD_300x300", "deploy", batch)
    net.images(3, 300)
    if data != "deploy":
        shape = f"input_param {{ shape {{ dim: 1 dim: 1 dim: {batch} dim: 8 }} }}"
        net.layer("Input", "label", [], ["label"], shape)
    _trunk(net, width)
    parts = [_head(net, source) for source in SOURCES]
    both = []
    for place, (what, axis) in enumerate((("loc", 1), ("conf", 1), ("priorbox", 2))):
        name, tops = f"mbox_{what}", [part[place] for part in parts]
        both.append(net.layer("Concat", name, tops, [name], f"concat_param {{ axis: {axis} }}"))
    if data == "deploy":
        _detections(net, both)
        return net
    net.layer(
        *("MultiBoxLoss", "mbox_loss", [*both, "label"], ["mbox_loss"]),
        "include { phase: TRAIN }\npropagate_down: true propagate_down: true\n"
        "propagate_down: false propagate_down: false\nloss_param { normalization: VALID }\n"
        f"multibox_loss_param {{ loc_loss_type: SMOOTH_L1 conf_loss_type: SOFTMAX loc_weight: 1 "
        f"num_classes: {CLASSES} share_location: true match_type: PER_PREDICTION "
        "overlap_threshold: 0.5 use_prior_for_matching: true background_label_id: 0 "
        "use_difficult_gt: true mining_type: MAX_NEGATIVE neg_pos_ratio: 3 neg_overlap: 0.5 "
        "code_type: CENTER_SIZE }",
    )
    return net


def _trunk(net: Writer, width: int) -> None:
    def conv(name: str, bottom: str, outputs: int, kernel: int, stride: int, pad: int) -> str:
        top = net.conv(name, bottom, outputs // width, kernel, stride, pad)
        return net.inplace("ReLU", f"{name}_relu", top)

    top = "data"
    for stage, (outputs, count) in enumerate(_VGG, 1):
        for index in range(1, count + 1):
            top = conv(f"conv{stage}_{index}", top, outputs, 3, 1, 1)
        if stage == 4:
            net.parameters += net.shapes[top][0]
            net.same(
                *("Normalize", "conv4_3_norm", top),
                "norm_param { across_spatial: false channel_shared: false "
                'scale_filler { type: "constant" value: 20 } }',
            )
        kernel, stride, pad = (3, 1, 1) if stage == 5 else (2, 2, 0)
        top = net.pool(f"pool{stage}", top, "MAX", kernel, stride, pad)
    top = net.conv("fc6", top, 1024 // width, 3, 1, 6, dilation=6)
    net.inplace("ReLU", "relu6", top)
    top = net.conv("fc7", top, 1024 // width, 1)
    net.inplace("ReLU", "relu7", top)
    for stage, first, second, stride in _EXTRA:
        top = conv(f"conv{stage}_1", top, first, 1, 1, 0)
        top = conv(f"conv{stage}_2", top, second, 3, stride, 1 if stride == 2 else 0)


def _head(net: Writer, source: Source) -> tuple[str, str, str]:
    tops = []
    for what, each in (("loc", 4), ("conf", CLASSES)):
        name = f"{source.name}_mbox_{what}"
        net.conv(name, source.name, source.priors * each, 3, 1, 1)
        order = "permute_param { order: 0 order: 2 order: 3 order: 1 }"
        net.layer("Permute", f"{name}_perm", [name], [f"{name}_perm"], order)
        flat = [f"{name}_flat"]
        tops.append(
            net.layer("Flatten", flat[0], [f"{name}_perm"], flat, "flatten_param {axis: 1}")
        )
    name = f"{source.name}_mbox_priorbox"
    ratios = " ".join(f"aspect_ratio: {ratio}" for ratio in source.ratios)
    net.layer(
        *("PriorBox", name, [source.name, "data"], [name]),
        f"prior_box_param {{ min_size: {source.least} max_size: {source.most} {ratios} flip: true "
        "clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 "
        f"step: {source.step} offset: 0.5 }}",
    )
    return tops[0], tops[1], name


def _detections(net: Writer, both: Sequence[str]) -> None:
    loc, conf, priors = both
    rows = f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {CLASSES} }} }}"
    net.layer("Reshape", "mbox_conf_reshape", [conf], ["mbox_conf_reshape"], rows)
    net.layer(
        *("Softmax", "mbox_conf_softmax", ["mbox_conf_reshape"], ["mbox_conf_softmax"]),
        "softmax_param { axis: 2 }",
    )
    flat = ["mbox_conf_flatten"]
    net.layer("Flatten", flat[0], ["mbox_conf_softmax"], flat, "flatten_param { axis: 1 }")
    net.layer(
        *("DetectionOutput", "detection_out", [loc, flat[0], priors], ["detection_out"]),
        f"include {{ phase: TEST }}\ndetection_output_param {{ num_classes: {CLASSES} "
        "share_location: true background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 400 } "
        "code_type: CENTER_SIZE keep_top_k: 200 confidence_threshold: 0.01 }",
    )
