"""Each layer forward against OpenCV's importer of Caffe's nets."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import Array, Case, build_case, run
from sirtaki_caffe.layers.base import Layer
from sirtaki_caffe.proto.blobs import blob_of
from sirtaki_caffe.proto.schema import TEST, NetParameter

IMAGE = [(2, 4, 9, 8)]
PAIR = [(2, 3, 4, 5), (2, 3, 4, 5)]
PLANES = [(2, 12, 9, 8), (4, 5)]
REGIONS = [[0, 1, 2, 7, 6], [1, 0, 0, 3, 8], [0, 4, 4, 4, 4], [1, 2, 1, 20, 20]]
WINOGRAD = 6e-5  # OpenCV's own error where it convolves 3 x 3

CASES = [
    Case("AbsVal", IMAGE),
    Case("BNLL", IMAGE),
    Case("BatchNorm", IMAGE),
    Case("BatchNorm", IMAGE, "eps: 0.01 use_global_stats: true"),
    Case("Concat", [(2, 3, 4, 5), (2, 1, 4, 5)]),
    Case("Concat", [(2, 3, 4, 5), (2, 3, 2, 5)], "axis: 2"),
    Case("Convolution", IMAGE, "num_output: 6 kernel_size: 3", tolerance=WINOGRAD),
    Case("Convolution", IMAGE, "num_output: 6 kernel_size: 3 pad: 1", tolerance=WINOGRAD),
    Case("Convolution", IMAGE, "num_output: 6 kernel_size: 3 stride: 2 pad: 2"),
    Case("Convolution", IMAGE, "num_output: 6 kernel_size: 3 dilation: 2 bias_term: false"),
    Case("Convolution", IMAGE, "num_output: 6 kernel_size: 3 group: 2", tolerance=WINOGRAD),
    Case("Convolution", IMAGE, "num_output: 4 kernel_size: 5 group: 4 pad: 2"),
    Case("Convolution", IMAGE, "num_output: 3 kernel_h: 1 kernel_w: 4 stride_h: 2 stride_w: 1"),
    Case("Convolution", IMAGE, "num_output: 3 kernel_h: 3 kernel_w: 5 pad_h: 1 pad_w: 2"),
    Case("Convolution", IMAGE, "num_output: 1 kernel_size: 1"),
    Case("Deconvolution", IMAGE, "num_output: 6 kernel_size: 3"),
    Case("Deconvolution", IMAGE, "num_output: 6 kernel_size: 4 stride: 2 pad: 1"),
    Case("Deconvolution", IMAGE, "num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4"),
    Case("Deconvolution", IMAGE, "num_output: 3 kernel_h: 3 kernel_w: 2 bias_term: false"),
    Case("Crop", [(2, 3, 7, 8), (2, 3, 4, 5)], "offset: 1 offset: 2"),
    Case("Crop", [(2, 3, 7, 8), (2, 3, 4, 5)], "axis: 2 offset: 1"),
    Case("Dropout", IMAGE, "dropout_ratio: 0.7"),
    Case("ELU", IMAGE, "alpha: 0.3"),
    Case("Eltwise", PAIR),
    Case("Eltwise", PAIR, "operation: MAX"),
    Case("Eltwise", PAIR, "operation: PROD"),
    Case("Eltwise", PAIR, "operation: SUM coeff: 2 coeff: -0.5"),
    Case("Eltwise", [*PAIR, (2, 3, 4, 5)]),
    Case("Exp", IMAGE),
    Case("Exp", IMAGE, "base: 2 scale: 0.5 shift: 0.25"),
    Case("Flatten", IMAGE),
    Case("InnerProduct", IMAGE, "num_output: 7"),
    Case("InnerProduct", IMAGE, "num_output: 1 bias_term: false"),
    Case("LRN", [(2, 7, 6, 5)], "local_size: 3 alpha: 0.5"),
    Case("LRN", [(2, 7, 6, 5)], "local_size: 5 alpha: 0.2 beta: 0.75"),
    Case("LRN", [(2, 7, 6, 5)], "local_size: 5 alpha: 0.2 beta: 0.5"),
    Case("LRN", [(2, 7, 6, 5)], "local_size: 3 alpha: 0.4 norm_region: WITHIN_CHANNEL"),
    Case("MVN", [(2, 1, 9, 8)]),
    Case("Normalize", IMAGE, "across_spatial: false channel_shared: false"),
    Case("PReLU", IMAGE),
    Case("PSROIPooling", PLANES, "output_dim: 3 group_size: 2 spatial_scale: 1", given=REGIONS),
    Case("ROIPooling", PLANES, "pooled_h: 2 pooled_w: 3 spatial_scale: 1", given=REGIONS),
    Case("Permute", IMAGE, "order: 0 order: 2 order: 3 order: 1"),
    Case("Pooling", IMAGE, "pool: MAX kernel_size: 3 stride: 2"),
    Case("Pooling", IMAGE, "pool: MAX kernel_size: 3 stride: 2 pad: 1"),
    Case("Pooling", IMAGE, "pool: MAX kernel_size: 2 stride: 2"),
    Case("Pooling", IMAGE, "pool: MAX kernel_size: 5 stride: 3 pad: 2"),
    Case("Pooling", IMAGE, "pool: MAX kernel_size: 3 stride: 1 pad: 1"),
    Case("Pooling", IMAGE, "pool: MAX kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 1"),
    Case("Pooling", IMAGE, "pool: MAX global_pooling: true"),
    Case("Pooling", IMAGE, "pool: AVE kernel_size: 3 stride: 2"),
    Case("Pooling", IMAGE, "pool: AVE kernel_size: 3 stride: 2 pad: 1"),
    Case("Pooling", IMAGE, "pool: AVE kernel_size: 2 stride: 2"),
    Case("Pooling", IMAGE, "pool: AVE kernel_size: 5 stride: 3 pad: 2"),
    Case("Pooling", IMAGE, "pool: AVE kernel_size: 3 stride: 1 pad: 1"),
    Case("Pooling", IMAGE, "pool: AVE global_pooling: true"),
    Case("Power", IMAGE, "scale: 2 shift: 1"),
    Case("Power", IMAGE, "power: 2 scale: 0.5 shift: 3"),
    Case("ReLU", IMAGE),
    Case("ReLU", IMAGE, "negative_slope: 0.1"),
    Case("Reshape", [(2, 3, 4, 5)], "shape { dim: 0 dim: -1 dim: 2 }"),
    Case("Reshape", [(2, 3, 4, 5)], "shape { dim: 6 dim: 2 } axis: 1 num_axes: 2"),
    Case("Reorg", [(2, 4, 6, 8)], "stride: 2"),
    Case("Scale", IMAGE),
    Case("Scale", [(2, 4, 5, 6), (2, 4)], "axis: 0"),
    Case("Scale", IMAGE, "bias_term: true"),
    Case("Sigmoid", IMAGE),
    Case("Slice", IMAGE, tops=2),
    Case("Slice", IMAGE, "slice_point: 1 slice_point: 3", tops=3),
    Case("Slice", IMAGE, "axis: 2 slice_point: 2", tops=2),
    Case("Softmax", IMAGE),
    Case("Softmax", IMAGE, "axis: -1"),
    Case("Swish", IMAGE),
    Case("Split", IMAGE, tops=2),
    Case("TanH", IMAGE),
]


def by_opencv(built: Layer, bottoms: list[Array]) -> list[Array]:
    """The tops that OpenCV finds for the same file and weights."""
    net = NetParameter(name="one")
    for place, bottom in enumerate(bottoms):
        source = net.layer.add(name=f"in{place}", type="Input", top=[f"bottom{place}"])
        source.input_param.shape.add(dim=bottom.shape)
    net.layer.append(built.proto)
    # Only what another layer reads can be asked for, where there are several tops.
    read = [f"read{place}" for place in range(len(built.proto.top))]
    for name, top in zip(read, built.proto.top, strict=True):
        net.layer.add(name=name, type="Power", bottom=[top], top=[name])
    weights = NetParameter(name="one")
    weights.layer.append(built.proto)
    weights.layer[0].blobs.extend(
        blob_of(p.data.detach().numpy().astype(np.float32)) for p in built.params
    )
    imported = cv2.dnn.readNetFromCaffe(
        np.frombuffer(str(net).encode(), np.uint8),
        np.frombuffer(weights.SerializeToString(), np.uint8),
    )
    for place, bottom in enumerate(bottoms):
        imported.setInput(bottom, f"bottom{place}")
    return [np.array(top) for top in imported.forward(read)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layer_does_what_opencv_does(case: Case) -> None:
    built = build_case(case, phase=TEST, dtype=torch.float32)
    bottoms = case.bottoms()
    ours = run(built, *bottoms)
    theirs = by_opencv(built, bottoms)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other.reshape(mine.shape), rtol=0, atol=case.tolerance)
