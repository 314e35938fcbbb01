"""Detectors that look at regions, as text: Faster R-CNN (Ren 2015) and R-FCN (Dai 2016)."""

from __future__ import annotations

from caffe_tests.families.segments import VGG
from caffe_tests.zoo_writer import Writer

CLASSES, ANCHORS, GROUP = 21, 9, 7
_MODULE = "caffe_tests.families.region_layers"
_NO_LOSS = "propagate_down: true propagate_down: false"


def _python(net: Writer, kind: str, name: str, bottoms: list[str], tops: list[str]) -> None:
    parameters = f'module: "{_MODULE}" layer: "{kind}"'
    if kind == "ProposalTarget" and "rfcn" in net.text:
        parameters += ' param_str: "2"'
    net.layer("Python", name, bottoms, tops, f"python_param {{ {parameters} }}")


def _proposals(net: Writer, width: int, size: int) -> str:
    """A trunk with a stride of 16, what proposes regions, and what they are to learn."""
    top = net.input("data", 1, 3, size, size)
    net.input("im_info", 1, 3)
    net.input("gt_boxes", 2, 5)
    for stage, (outputs, count) in enumerate(VGG, 1):
        for index in range(1, count + 1):
            top = net.conv(f"conv{stage}_{index}", top, outputs // width, 3, pad=1)
            net.inplace("ReLU", f"relu{stage}_{index}", top)
        if stage < 5:
            top = net.pool(f"pool{stage}", top, "MAX", 2, 2)
    side = net.conv("rpn_conv/3x3", top, 512 // width, 3, pad=1, top="rpn/output")
    net.inplace("ReLU", "rpn_relu/3x3", side)
    net.conv("rpn_cls_score", side, 2 * ANCHORS, 1)
    net.conv("rpn_bbox_pred", side, 4 * ANCHORS, 1)
    pair = "reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } }"
    net.layer("Reshape", "rpn_pair", ["rpn_cls_score"], ["rpn_pair"], pair)
    targets = [f"rpn_{what}" for what in ("labels", "targets", "inside", "outside")]
    _python(net, "AnchorTarget", "rpn-data", ["rpn_cls_score", "gt_boxes", "im_info"], targets)
    body = f"{_NO_LOSS}\nloss_param {{ ignore_label: -1 normalize: true }}"
    net.layer("SoftmaxWithLoss", "rpn_loss_cls", ["rpn_pair", "rpn_labels"], ["rpn_cls_loss"], body)
    net.layer(
        *("SmoothL1Loss", "rpn_loss_bbox", ["rpn_bbox_pred", *targets[1:]], ["rpn_loss_bbox"]),
        "loss_weight: 1\nsmooth_l1_loss_param { sigma: 3.0 }",
    )
    net.layer("Softmax", "rpn_cls_prob", ["rpn_pair"], ["rpn_cls_prob"])
    back = f"reshape_param {{ shape {{ dim: 0 dim: {2 * ANCHORS} dim: -1 dim: 0 }} }}"
    net.layer("Reshape", "rpn_prob_back", ["rpn_cls_prob"], ["rpn_prob_back"], back)
    _python(
        net, "Proposal", "proposal", ["rpn_prob_back", "rpn_bbox_pred", "im_info"], ["rpn_rois"]
    )
    found = ["rois", "labels", "bbox_targets", "bbox_inside", "bbox_outside"]
    _python(net, "ProposalTarget", "roi-data", ["rpn_rois", "gt_boxes"], found)
    return top


def faster_rcnn(width: int = 1, size: int = 224) -> Writer:
    """On VGG-16, trained from end to end; channels divided by `width`."""
    net = Writer("VGG_ILSVRC_16_layers_faster_rcnn", "deploy")
    top = _proposals(net, width, size)
    net.shapes["roi_pool5"] = (net.shapes[top][0], 7, 7)
    body = "roi_pooling_param { pooled_w: 7 pooled_h: 7 spatial_scale: 0.0625 }"
    top = net.layer("ROIPooling", "roi_pool5", [top, "rois"], ["roi_pool5"], body)
    for index in (6, 7):
        top = net.inplace("ReLU", f"relu{index}", net.full(f"fc{index}", top, 4096 // width))
        net.inplace("Dropout", f"drop{index}", top, "dropout_param { dropout_ratio: 0.5 }")
    net.full("cls_score", top, CLASSES)
    net.full("bbox_pred", top, 4 * CLASSES)
    body = f"{_NO_LOSS}\nloss_weight: 1"
    net.layer("SoftmaxWithLoss", "loss_cls", ["cls_score", "labels"], ["loss_cls"], body)
    bottoms = ["bbox_pred", "bbox_targets", "bbox_inside", "bbox_outside"]
    net.layer("SmoothL1Loss", "loss_bbox", bottoms, ["loss_bbox"], "loss_weight: 1")
    return net


def rfcn(width: int = 1, size: int = 224) -> Writer:
    """Scores by place in the region, and the hardest regions only (OHEM)."""
    net = Writer("rfcn", "deploy")
    top = _proposals(net, width, size)
    top = net.inplace("ReLU", "conv_new_relu", net.conv("conv_new_1", top, 1024 // width, 1))
    for what, outputs in (("cls", CLASSES), ("bbox", 8)):
        net.conv(f"rfcn_{what}", top, outputs * GROUP**2, 1)
        pooled = f"psroipooled_{what}_rois"
        net.shapes[pooled] = (outputs, GROUP, GROUP)
        body = f"spatial_scale: 0.0625 output_dim: {outputs} group_size: {GROUP}"
        net.layer(
            *("PSROIPooling", pooled, [f"rfcn_{what}", "rois"], [pooled]),
            f"psroi_pooling_param {{ {body} }}",
        )
        net.pool({"cls": "cls_score", "bbox": "bbox_pred"}[what], pooled, "AVE", GROUP, GROUP)
    _hard_regions(net)
    labels = ["cls_score", "labels_ohem"]
    body = f"{_NO_LOSS}\nloss_weight: 1\nloss_param {{ ignore_label: -1 }}"
    net.layer("SoftmaxWithLoss", "loss", labels, ["loss_cls"], body)
    boxes = ["bbox_pred", "bbox_targets_4", "bbox_weights_ohem"]
    body = "loss_weight: 1\nloss_param { normalization: PRE_FIXED pre_fixed_normalizer: 128 }"
    net.layer("SmoothL1LossOHEM", "loss_bbox", boxes, ["loss_bbox"], body)
    return net


def _hard_regions(net: Writer) -> None:
    four = "reshape_param { shape { dim: 0 dim: 8 dim: 1 dim: 1 } }"
    for name in ("bbox_targets", "bbox_inside"):
        net.layer("Reshape", f"{name}_4", [name], [f"{name}_4"], four)
    column = "reshape_param { shape { dim: 0 dim: 1 dim: 1 dim: 1 } }"
    net.layer("Reshape", "labels_4", ["labels"], ["labels_4"], column)
    tops = ["temp_loss_cls", "temp_prob_cls", "per_roi_loss_cls"]
    weights = "loss_weight: 0 " * 3 + "propagate_down: false propagate_down: false"
    net.layer("SoftmaxWithLossOHEM", "per_roi_cls", ["cls_score", "labels_4"], tops, weights)
    tops = ["temp_loss_bbox", "per_roi_loss_bbox"]
    bottoms = ["bbox_pred", "bbox_targets_4", "bbox_inside_4"]
    weights = "loss_weight: 0 " * 2 + "propagate_down: false " * 3
    net.layer("SmoothL1LossOHEM", "per_roi_bbox", bottoms, tops, weights)
    parts = ["per_roi_loss_cls", "per_roi_loss_bbox"]
    body = "propagate_down: false propagate_down: false"
    net.layer("Eltwise", "per_roi_loss", parts, ["per_roi_loss"], body)
    quiet = ["temp_loss_cls", "temp_prob_cls", "temp_loss_bbox", "bbox_outside"]
    net.layer("Silence", "silence", quiet, [])
    net.layer(
        *("BoxAnnotatorOHEM", "annotator", ["rois", "per_roi_loss", "labels_4", "bbox_inside_4"]),
        ["labels_ohem", "bbox_weights_ohem"],
        "box_annotator_ohem_param { roi_per_img: 8 ignore_label: -1 }",
    )
