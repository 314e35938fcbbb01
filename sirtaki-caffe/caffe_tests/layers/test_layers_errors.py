"""What a layer refuses when it is built: the error names the layer, its type and the field."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from caffe_tests.layers.layer_runs import Case, build, build_case
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import layer_class
from sirtaki_caffe.layers.refused import REFUSED

IMAGE = [(2, 4, 6, 5)]
ROW = [(3, 8)]
PAIR = [(2, 3), (2, 4)]

# A layer, and what its error says.
REFUSALS: list[tuple[Case, str]] = [
    (Case("Accuracy", [(3, 4), (2,)]), "need 3 labels"),
    (Case("Accuracy", [(3, 4), (3,)], "top_k: 5"), r"top_k must be between 1 and the 4 classes"),
    (Case("Accuracy", [(3, 4), (3,)], "axis: 2"), r"accuracy_param.axis is 2, .* has 2 axes"),
    (Case("ArgMax", ROW, "top_k: 9"), r"argmax_param.top_k must be between 1 and the 8"),
    (Case("ArgMax", ROW, "axis: 2"), r"argmax_param.axis is 2"),
    (Case("Axpy", [(2, 3), (2, 4, 5), (2, 4, 5)]), r"must be \(items, channels\)"),
    (Case("Axpy", [(2, 4), (2, 4, 5), (2, 4, 6)]), r"bottoms 1 and 2 differ"),
    (Case("BatchNorm", IMAGE, "moving_average_fraction: 2"), "moving_average_fraction"),
    (Case("BatchNorm", IMAGE, "eps: -1"), "eps must not be negative"),
    (Case("BatchReindex", [(2, 3), (2, 2)]), "must be a list of items"),
    (Case("Bias", IMAGE, "axis: 3 num_axes: 2"), r"bias_param.num_axes 2 from axis 3 on"),
    (Case("BoxAnnotatorOHEM", [(2, 5), (2,), (2,), (2, 4)], "roi_per_img: 0"), "roi_per_img"),
    (Case("Clip", IMAGE, "min: 2 max: 1"), r"clip_param.min is greater"),
    (Case("Concat", PAIR, "axis: 0"), r"bottoms 0 and 1 must have equal sizes on all axes but 0"),
    (Case("Concat", PAIR, "axis: 2"), r"concat_param.axis is 2"),
    (Case("Concat", PAIR, "concat_dim: 2"), r"concat_param.concat_dim is 2"),
    (Case("Concat", PAIR, "concat_dim: 1 axis: 1"), "both axis and concat_dim"),
    (Case("ContrastiveLoss", [(2, 3), (2, 4), (2,)]), "must be vectors of one shape"),
    (Case("ContrastiveLoss", [(2, 3), (2, 3), (3,)]), "2 pairs need as many"),
    (Case("Convolution", IMAGE, "num_output: 3"), r"convolution_param.kernel_size is missing"),
    (Case("Convolution", IMAGE, "kernel_size: 3"), r"convolution_param.num_output must be given"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 0"), "kernel_size must be positive"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_h: 3"), "kernel_size must be positive"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1 stride: 0"), "stride must be posit"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1 dilation: 0"), "dilation must be"),
    (Case("Convolution", IMAGE, "num_output: 4 kernel_size: 1 group: 3"), "3 does not divide chan"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1 group: 2"), "divide num_output 3"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1 group: 0"), "group must be given"),
    (
        Case("Convolution", IMAGE, "num_output: 3 kernel_size: 3 kernel_h: 3 kernel_w: 3"),
        "both kernel_size and kernel_h or kernel_w; keep one form",
    ),
    (
        Case("Convolution", IMAGE, "num_output: 3 kernel_size: 3 pad: 1 pad_w: 3"),
        "both pad and pad_h or pad_w",
    ),
    (
        Case("Convolution", [(2, 3, 4)], "num_output: 3 kernel_h: 3 kernel_w: 3"),
        "are for two spatial axes",
    ),
    (
        Case("Convolution", IMAGE, "num_output: 3 kernel_size: 3 stride: 1 stride: 1 stride: 1"),
        "stride is given 3 times; its bottom has 2 spatial axes",
    ),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 9"), r"kernel \[9, 9\] does not fit"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1 axis: 4"), r"axis is 4"),
    (
        Case("Convolution", IMAGE, "num_output: 2147483647 kernel_size: 99"),
        "more than 2\\^31 - 1 elements",
    ),
    (
        Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1 weight_filler { type: 'no' }"),
        r"convolution_param.weight_filler: there is no filler of type 'no'",
    ),
    (
        Case("Convolution", [*IMAGE, *IMAGE], "num_output: 3 kernel_size: 1"),
        "2 bottoms and 1 tops",
    ),
    (
        Case("Convolution", [*IMAGE, (1, 4, 6, 5)], "num_output: 3 kernel_size: 1", tops=2),
        "must have one shape",
    ),
    (Case("Crop", [(2, 3, 4), (2, 3, 5)]), r"5 elements from crop_param.offset 0 on go beyond"),
    (Case("Crop", [(2, 3, 4), (2, 3)]), "must have 3 axes"),
    (Case("Crop", [(2, 3, 4), (2, 3, 4)], "axis: 3"), r"crop_param.axis is 3"),
    (
        Case("Crop", [(2, 3, 4), (2, 3, 4)], "axis: 0 offset: 1 offset: 1"),
        "offset is given 2 times",
    ),
    (Case("Deconvolution", IMAGE, "num_output: 4 kernel_size: 1 pad: 9"), "does not fit"),
    (Case("Deconvolution", IMAGE, "num_output: 4 kernel_size: 1 group: 3"), "3 does not divide"),
    (Case("Dropout", ROW, "dropout_ratio: 1"), "dropout_ratio must be at least 0 and below 1"),
    (Case("Eltwise", PAIR), "must have one shape"),
    (Case("Eltwise", [*ROW, *ROW], "coeff: 1"), "given 1 times for 2 bottoms"),
    (Case("Eltwise", [*ROW, *ROW], "operation: MAX coeff: 1 coeff: 1"), "is for operation SUM"),
    (Case("Embed", ROW, "num_output: 3"), r"embed_param.input_dim must be given"),
    (Case("Embed", ROW, "input_dim: 3"), r"embed_param.num_output must be given"),
    (Case("EuclideanLoss", PAIR), "must have as many elements"),
    (Case("Exp", ROW, "base: -2"), r"exp_param.base must be positive, or -1"),
    (Case("Filter", [(2, 3), (3,)]), "bottom 0 has not as many items"),
    (Case("Filter", [(2, 3), (2,)], tops=2), "it has 2 tops"),
    (Case("Flatten", IMAGE, "axis: 2 end_axis: 1"), "end_axis is before axis"),
    (Case("Flatten", IMAGE, "axis: 4"), r"flatten_param.axis is 4"),
    (Case("HingeLoss", [(2, 3), (3,)]), "2 items need as many labels"),
    (Case("Im2col", IMAGE, "kernel_size: 9"), "does not fit"),
    (Case("InfogainLoss", [(2, 3), (2,)]), r"infogain_loss_param.source is missing"),
    (Case("InfogainLoss", [(2, 3), (2,), (2, 2)]), "4 numbers, but 3 classes need 9"),
    (Case("InnerProduct", IMAGE), r"inner_product_param.num_output must be given"),
    (Case("InnerProduct", IMAGE, "num_output: 1 axis: 4"), r"inner_product_param.axis is 4"),
    (Case("LRN", IMAGE, "local_size: 4"), r"lrn_param.local_size must be odd"),
    (Case("LRN", ROW), "must have 4 axes"),
    (Case("LSTM", [(3, 2, 4), (3, 2)]), r"recurrent_param.num_output must be given"),
    (Case("LSTM", [(3, 2, 4), (2, 3)], "num_output: 1"), r"cont must be \[3, 2\]"),
    (Case("LSTM", [(3,), (3,)], "num_output: 1"), "must be \\(steps, sequences"),
    (
        Case("LSTM", [(3, 2, 4), (3, 2), (3, 4)], "num_output: 1"),
        r"x_static \[3, 4\] does not fit 2 sequences",
    ),
    (
        Case("LSTM", [(3, 2, 4), (3, 2)], "num_output: 1 expose_hidden: true"),
        "it needs 4 bottoms, or 5 with x_static, and 3 tops",
    ),
    (
        Case("RNN", [(3, 2, 4), (3, 2), (1, 2, 2)], "num_output: 1 expose_hidden: true", tops=2),
        r"a hidden state must be \[1, 2, 1\]",
    ),
    (Case("LSTMUnit", [(1, 2, 3), (1, 2, 9), (1, 2)]), "4 D"),
    (Case("Log", ROW, "base: 1"), r"log_param.base must be positive and not 1"),
    (Case("MultinomialLogisticLoss", [(2, 3), (3,)]), "2 items need as many labels"),
    (Case("MVN", [(3,)]), "needs an axis of channels"),
    (Case("Normalize", [(3,)]), "needs an axis of channels"),
    (Case("PReLU", [(3,)]), "needs an axis of channels"),
    (Case("Parameter", []), r"parameter_param.shape is missing"),
    (Case("Permute", IMAGE, "order: 4"), "must name axes of its bottom, 0 to 3, once"),
    (Case("Permute", IMAGE, "order: 1 order: 1"), "must name axes of its bottom"),
    (Case("Pooling", IMAGE), r"pooling_param.kernel_size is missing"),
    (Case("Pooling", IMAGE, "kernel_size: 0"), r"pooling_param.kernel_size must be given"),
    (Case("Pooling", IMAGE, "kernel_size: 2 stride: 0"), r"pooling_param.stride must be given"),
    (Case("Pooling", IMAGE, "kernel_size: 2 pad: 2"), "must be smaller than the kernel"),
    (Case("Pooling", IMAGE, "kernel_size: 2 kernel_h: 2 kernel_w: 2"), "both kernel_size and"),
    (Case("Pooling", IMAGE, "kernel_h: 2"), "needs both kernel_h and kernel_w"),
    (Case("Pooling", IMAGE, "kernel_size: 2 stride_w: 2"), "needs both stride_h and stride_w"),
    (Case("Pooling", IMAGE, "global_pooling: true kernel_size: 2"), "both global_pooling and"),
    (Case("Pooling", IMAGE, "global_pooling: true pad: 1"), "global_pooling needs pad 0"),
    (Case("Pooling", IMAGE, "global_pooling: true stride: 2"), "global_pooling needs stride 1"),
    (Case("Pooling", IMAGE, "kernel_size: 9"), "do not fit an axis of 6"),
    (Case("Pooling", IMAGE, "kernel_size: 2 pool: AVE", tops=2), "only MAX pooling"),
    (Case("Pooling", IMAGE, "kernel_size: 2 pad: 1 pool: STOCHASTIC"), "is for MAX and AVE"),
    (Case("Pooling", IMAGE, "kernel_size_3d: 2"), "three axes"),
    (Case("Pooling", ROW, "kernel_size: 2"), "must have 4 axes"),
    (
        Case("PSROIPooling", [*IMAGE, (1, 5)], "output_dim: 2 group_size: 3 spatial_scale: 1"),
        "must have 18 channels",
    ),
    (Case("ROIPooling", [*IMAGE, (1, 5)], "pooled_h: 2"), r"roi_pooling_param.pooled_w must be"),
    (Case("ROIPooling", [*IMAGE, (1, 4)], "pooled_h: 2 pooled_w: 2"), "must be \\(regions, 5\\)"),
    (Case("Reduction", ROW, "axis: 2"), r"reduction_param.axis is 2"),
    (Case("Reorg", IMAGE, "stride: 4"), "stride 4 squared must divide the channels"),
    (Case("Reshape", ROW, "shape { dim: 5 dim: -1 }"), "no multiple of 5"),
    (Case("Reshape", ROW, "shape { dim: 5 dim: 5 }"), "has 24 elements, the shape .* has 25"),
    (Case("Reshape", ROW, "shape { dim: -1 dim: -1 }"), "-1 at most once"),
    (Case("Reshape", ROW, "shape { dim: 3 dim: 8 dim: 0 }"), "0 at place 2"),
    (Case("Reshape", ROW, "axis: 3"), r"reshape_param.axis is 3"),
    (Case("Reshape", ROW, "axis: 1 num_axes: 2"), r"reshape_param.num_axes 2 from axis 1 on"),
    (Case("Reshape", ROW, "pixelshuffler: 2"), "pixelshuffler is not supported"),
    (Case("SPP", IMAGE), r"spp_param.pyramid_height must be given"),
    (Case("SPP", IMAGE, "pyramid_height: 6"), "too small for 4 x 4 windows"),
    (Case("SPP", IMAGE, "pyramid_height: 4000000000"), "more than 16"),
    (Case("Scale", IMAGE, "axis: 4"), r"scale_param.axis is 4"),
    (Case("Scale", IMAGE, "num_axes: -2"), r"scale_param.num_axes must be at least -1"),
    (Case("Scale", [*IMAGE, (3,)]), "does not fit a bottom of shape"),
    (Case("SigmoidCrossEntropyLoss", PAIR), "must have as many elements"),
    (Case("Slice", ROW, tops=3), "3 equal parts of the 8 elements of axis 1"),
    (Case("Slice", ROW, "slice_point: 2 slice_point: 4", tops=2), "2 tops need 1"),
    (Case("Slice", ROW, "slice_point: 4 slice_point: 4", tops=3), "must be positive and increase"),
    (Case("Slice", ROW, "slice_point: 8", tops=2), "8 is beyond the 8 elements"),
    (Case("Slice", ROW, "slice_dim: 1 axis: 1", tops=2), "both axis and slice_dim"),
    (Case("SmoothL1Loss", PAIR), "must have as many elements"),
    (Case("SmoothL1Loss", [*ROW, *ROW], "sigma: 0"), "sigma must be positive"),
    (Case("Softmax", ROW, "axis: 2"), r"softmax_param.axis is 2"),
    (Case("SoftmaxWithLoss", [(3, 4), (3, 4)]), "need 3 labels"),
    (Case("SoftmaxWithLoss", [(3, 4), (3,)], "label_smoothing: 1"), "label_smoothing must be"),
    (Case("Tile", ROW), r"tile_param.tiles must be given"),
    (Case("Tile", ROW, "tiles: 2 axis: 2"), r"tile_param.axis is 2"),
]


@pytest.mark.parametrize(("case", "why"), REFUSALS, ids=lambda value: str(value)[:60])
def test_what_does_not_fit_is_refused_by_name(case: Case, why: str) -> None:
    with pytest.raises(LayerError, match=rf"layer 'tested' \({case.kind}\): .*{why}"):
        build(case.text, *case.shapes, tops=case.tops).shapes([tuple(s) for s in case.shapes])


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_layer_that_is_not_supported_says_so_when_it_is_built(kind: str) -> None:
    with pytest.raises(LayerError, match=rf"layer 'tested' \({kind}\): .*not "):
        build(f'type: "{kind}"', (2, 3))


def test_an_unknown_type_has_no_class() -> None:
    assert layer_class("Convolutoin") is None


# A layer that was built for one shape, and another shape.
OTHER_SHAPES = [
    (Case("BatchNorm", IMAGE), [(2, 5, 6, 5)], "has 5 channels"),
    (Case("Convolution", IMAGE, "num_output: 3 kernel_size: 1"), [(2, 5, 6, 5)], "has 5 channels"),
    (Case("InnerProduct", ROW, "num_output: 3"), [(3, 9)], "has 9 values from axis 1 on"),
    (Case("LSTM", [(3, 2, 4), (3, 2)], "num_output: 1"), [(3, 2, 5), (3, 2)], "weights for 4"),
    (Case("Pooling", IMAGE, "kernel_size: 4"), [(2, 4, 3, 3)], "do not fit an axis of 3"),
    (Case("Scale", IMAGE), [(2, 5, 6, 5)], "does not fit"),
]


@pytest.mark.parametrize(("case", "shapes", "why"), OTHER_SHAPES, ids=lambda v: str(v)[:50])
def test_a_bottom_that_became_unfit_is_refused(
    case: Case, shapes: Sequence[tuple[int, ...]], why: str
) -> None:
    built = build(case.text, *case.shapes)
    with pytest.raises(LayerError, match=why):
        built.shapes(shapes)


def test_an_embedding_refuses_numbers_that_it_has_no_row_for() -> None:
    built = build_case(Case("Embed", [(2,)], "num_output: 3 input_dim: 4"))
    with pytest.raises(LayerError, match="numbers outside 0 to"):
        built.forward([torch.tensor([0.0, 4.0])])


def test_items_that_a_batch_does_not_have_are_refused() -> None:
    built = build('type: "BatchReindex"', (2, 3), (1,))
    with pytest.raises(LayerError, match="asks for items 2 to 2 of 2"):
        built.forward([torch.zeros(2, 3), torch.tensor([2.0])])


@pytest.mark.parametrize("kind", ["ROIPooling", "PSROIPooling"])
def test_regions_of_images_that_a_batch_does_not_have_are_refused(kind: str) -> None:
    fields = {
        "ROIPooling": "pooled_h: 1 pooled_w: 1",
        "PSROIPooling": "output_dim: 4 group_size: 1 spatial_scale: 1",
    }
    built = build_case(Case(kind, [*IMAGE, (1, 5)], fields[kind]))
    with pytest.raises(LayerError, match="images outside 0 to 1"):
        built.forward([torch.zeros(*IMAGE[0]).double(), torch.tensor([[2.0, 0, 0, 1, 1]])])
