"""Old nets and solvers become what the present Caffe reads: exact texts."""

from __future__ import annotations

import pytest

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import NetParameter, SolverParameter, message_class
from sirtaki_caffe.proto.text import parse, text_of
from sirtaki_caffe.proto.upgrade import type_of_v1, upgrade_net, upgrade_solver
from sirtaki_caffe.proto.upgrade_v0 import TYPES

LENET_V0 = """
name: "LeNet"
layers { layer { name: "mnist" type: "data" source: "mnist-train" scale: 0.00390625 batchsize: 64
    rand_skip: 5 }
  top: "data" top: "label" }
layers { layer { name: "conv1" type: "conv" num_output: 20 kernelsize: 5 stride: 1
    weight_filler { type: "xavier" } bias_filler { type: "constant" }
    blobs_lr: 1. blobs_lr: 2. }
  bottom: "data" top: "conv1" }
layers { layer { name: "pool1" type: "pool" kernelsize: 2 stride: 2 pool: AVE }
  bottom: "conv1" top: "pool1" }
layers { layer { name: "ip1" type: "innerproduct" num_output: 500 biasterm: false
    weight_filler { type: "xavier" } blobs_lr: 1. weight_decay: 1. weight_decay: 0. }
  bottom: "pool1" top: "ip1" }
layers { layer { name: "relu1" type: "relu" } bottom: "ip1" top: "ip1" }
layers { layer { name: "drop1" type: "dropout" dropout_ratio: 0.4 } bottom: "ip1" top: "ip1" }
layers { layer { name: "loss" type: "softmax_loss" } bottom: "ip1" bottom: "label" }
"""

LENET_V2 = """name: "LeNet"
layer {
  name: "mnist"
  type: "Data"
  top: "data"
  top: "label"
  transform_param {
    scale: 0.00390625
  }
  data_param {
    source: "mnist-train"
    batch_size: 64
    rand_skip: 5
  }
}
layer {
  name: "conv1"
  type: "Convolution"
  bottom: "data"
  top: "conv1"
  param {
    lr_mult: 1
  }
  param {
    lr_mult: 2
  }
  convolution_param {
    num_output: 20
    kernel_size: 5
    stride: 1
    weight_filler {
      type: "xavier"
    }
    bias_filler {
      type: "constant"
    }
  }
}
layer {
  name: "pool1"
  type: "Pooling"
  bottom: "conv1"
  top: "pool1"
  pooling_param {
    pool: AVE
    kernel_size: 2
    stride: 2
  }
}
layer {
  name: "ip1"
  type: "InnerProduct"
  bottom: "pool1"
  top: "ip1"
  param {
    lr_mult: 1
    decay_mult: 1
  }
  param {
    decay_mult: 0
  }
  inner_product_param {
    num_output: 500
    bias_term: false
    weight_filler {
      type: "xavier"
    }
  }
}
layer {
  name: "relu1"
  type: "ReLU"
  bottom: "ip1"
  top: "ip1"
}
layer {
  name: "drop1"
  type: "Dropout"
  bottom: "ip1"
  top: "ip1"
  dropout_param {
    dropout_ratio: 0.4
  }
}
layer {
  name: "loss"
  type: "SoftmaxWithLoss"
  bottom: "ip1"
  bottom: "label"
}
"""

IMAGENET_V0 = """
name: "CaffeNet"
layers { layer { name: "data" type: "data" source: "/db" meanfile: "/mean" batchsize: 256
    cropsize: 227 mirror: true } top: "data" top: "label" }
layers { layer { name: "pad2" type: "padding" pad: 2 } bottom: "data" top: "pad2" }
layers { layer { name: "conv2" type: "conv" num_output: 256 group: 2 kernelsize: 5 }
  bottom: "pad2" top: "conv2" }
layers { layer { name: "norm2" type: "lrn" local_size: 5 alpha: 0.0001 beta: 0.75 k: 2 }
  bottom: "conv2" top: "norm2" }
layers { layer { name: "pad3" type: "padding" pad: 1 } bottom: "norm2" top: "pad3" }
layers { layer { name: "pool3" type: "pool" pool: MAX kernelsize: 3 } bottom: "pad3" top: "pool3" }
layers { layer { name: "both" type: "concat" concat_dim: 1 } bottom: "conv2" bottom: "pool3"
  top: "both" }
"""

IMAGENET_V2 = """name: "CaffeNet"
layer {
  name: "data"
  type: "Data"
  top: "data"
  top: "label"
  transform_param {
    mirror: true
    crop_size: 227
    mean_file: "/mean"
  }
  data_param {
    source: "/db"
    batch_size: 256
  }
}
layer {
  name: "conv2"
  type: "Convolution"
  bottom: "data"
  top: "conv2"
  convolution_param {
    num_output: 256
    pad: 2
    kernel_size: 5
    group: 2
  }
}
layer {
  name: "norm2"
  type: "LRN"
  bottom: "conv2"
  top: "norm2"
  lrn_param {
    local_size: 5
    alpha: 0.0001
    beta: 0.75
    k: 2
  }
}
layer {
  name: "pool3"
  type: "Pooling"
  bottom: "norm2"
  top: "pool3"
  pooling_param {
    pool: MAX
    kernel_size: 3
    pad: 1
  }
}
layer {
  name: "both"
  type: "Concat"
  bottom: "conv2"
  bottom: "pool3"
  top: "both"
  concat_param {
    concat_dim: 1
  }
}
"""

SIAMESE_V1 = """
name: "pairs"
layers { name: "images" type: IMAGE_DATA top: "data" top: "label"
  image_data_param { source: "list" mean_file: "m" crop_size: 5 mirror: false scale: 2
    shuffle: true }
  include { phase: TRAIN not_stage: "x" } }
layers { name: "windows" type: WINDOW_DATA top: "w" window_data_param { source: "l" scale: 3 }
  transform_param { mirror: true } exclude { phase: TEST } }
layers { name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip"
  param: "ip_w" param: "ip_b" blob_share_mode: PERMISSIVE blobs_lr: 1 blobs_lr: 2 weight_decay: 3
  inner_product_param { num_output: 10 } blobs { num: 1 data: 5 } }
layers { name: "loss" type: CONTRASTIVE_LOSS bottom: "ip" bottom: "ip" bottom: "label" top: "loss"
  loss_weight: 0.5 contrastive_loss_param { margin: 2 } loss_param { normalize: false } }
"""

SIAMESE_V2 = """name: "pairs"
layer {
  name: "images"
  type: "ImageData"
  top: "data"
  top: "label"
  include {
    phase: TRAIN
    not_stage: "x"
  }
  transform_param {
    scale: 2
    mirror: false
    crop_size: 5
    mean_file: "m"
  }
  image_data_param {
    source: "list"
    shuffle: true
  }
}
layer {
  name: "windows"
  type: "WindowData"
  top: "w"
  exclude {
    phase: TEST
  }
  transform_param {
    scale: 3
    mirror: true
  }
  window_data_param {
    source: "l"
  }
}
layer {
  name: "ip"
  type: "InnerProduct"
  bottom: "data"
  top: "ip"
  param {
    name: "ip_w"
    share_mode: PERMISSIVE
    lr_mult: 1
    decay_mult: 3
  }
  param {
    name: "ip_b"
    lr_mult: 2
  }
  blobs {
    num: 1
    data: 5
  }
  inner_product_param {
    num_output: 10
  }
}
layer {
  name: "loss"
  type: "ContrastiveLoss"
  bottom: "ip"
  bottom: "ip"
  bottom: "label"
  top: "loss"
  loss_weight: 0.5
  loss_param {
    normalize: false
  }
  contrastive_loss_param {
    margin: 2
  }
}
"""


def upgraded(text: str) -> str:
    return text_of(upgrade_net(parse(text, NetParameter, "net")))


@pytest.mark.parametrize(
    ("old", "new"),
    [(LENET_V0, LENET_V2), (IMAGENET_V0, IMAGENET_V2), (SIAMESE_V1, SIAMESE_V2)],
    ids=["lenet v0", "imagenet v0", "siamese v1"],
)
def test_an_old_net_becomes_a_present_one(old: str, new: str) -> None:
    assert upgraded(old) == new
    assert upgraded(new) == new


def test_an_upgrade_leaves_what_it_is_given() -> None:
    net = parse(LENET_V0, NetParameter, "net")
    upgrade_net(net)
    assert net == parse(LENET_V0, NetParameter, "net")


def test_every_type_of_version_1_is_one_of_the_present() -> None:
    types = message_class("V1LayerParameter").LayerType
    assert [type_of_v1(number) for number in sorted(types.values())] == [
        *("", "Accuracy", "BNLL", "Concat", "Convolution", "Data"),
        *("Dropout", "EuclideanLoss", "Flatten", "HDF5Data", "HDF5Output", "Im2col"),
        *("ImageData", "InfogainLoss", "InnerProduct", "LRN", "MultinomialLogisticLoss", "Pooling"),
        *("ReLU", "Sigmoid", "Softmax", "SoftmaxWithLoss", "Split", "TanH"),
        *("WindowData", "Eltwise", "Power", "SigmoidCrossEntropyLoss", "HingeLoss", "MemoryData"),
        *("ArgMax", "Threshold", "DummyData", "Slice", "MVN", "AbsVal"),
        *("Silence", "ContrastiveLoss", "Exp", "Deconvolution"),
    ]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_type_of_version_0_is_one_of_version_1(name: str) -> None:
    assert upgraded(f"layers {{ layer {{ name: '' type: '{name}' }} }}") == upgraded(
        f"layers {{ name: '' type: {TYPES[name]} }}"
    )


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "images",
            "new_height: 4 new_width: 5 shuffle_images: true",
            "image_data_param { shuffle: true new_height: 4 new_width: 5 }",
        ),
        (
            "images",
            "source: 's' batchsize: 2 rand_skip: 3",
            "image_data_param { source: 's' batch_size: 2 rand_skip: 3 }",
        ),
        (
            "window_data",
            "det_fg_threshold: 1 det_bg_threshold: 2 det_fg_fraction: 3",
            "window_data_param { fg_threshold: 1 bg_threshold: 2 fg_fraction: 3 }",
        ),
        (
            "window_data",
            "det_context_pad: 4 det_crop_mode: 'square' cropsize: 5",
            "window_data_param { context_pad: 4 crop_mode: 'square' crop_size: 5 }",
        ),
        ("hdf5_data", "source: 's' batchsize: 2", "hdf5_data_param { source: 's' batch_size: 2 }"),
        (
            "hdf5_output",
            "hdf5_output_param { file_name: 'f' }",
            "hdf5_output_param { file_name: 'f' }",
        ),
        ("infogain_loss", "source: 's'", "infogain_loss_param { source: 's' }"),
        ("pool", "pad: 1 pool: STOCHASTIC", "pooling_param { pad: 1 pool: STOCHASTIC }"),
        (
            "conv",
            "biasterm: false group: 2 pad: 1 stride: 3",
            "convolution_param { bias_term: false group: 2 pad: 1 stride: 3 }",
        ),
        (
            "innerproduct",
            "bias_filler { value: 1 }",
            "inner_product_param { bias_filler { value: 1 } }",
        ),
    ],
)
def test_fields_of_version_0_go_to_the_message_of_their_type(kind: str, old: str, new: str) -> None:
    assert upgraded(f"layers {{ layer {{ type: '{kind}' {old} }} }}") == upgraded(
        f"layers {{ type: {TYPES[kind]} {new} }}"
    )


def test_a_field_that_means_nothing_is_left_out_with_a_note() -> None:
    notes: list[str] = []
    net = parse("layers { layer { name: 'a' type: 'relu' num_output: 3 } }", NetParameter, "")
    assert text_of(upgrade_net(net, notes.append).layer[0]) == 'name: "a"\ntype: "ReLU"\n'
    assert notes == [
        "layer 'a' (relu): num_output has no meaning here and is left out",
        "Upgraded layers of version 0 (V0LayerParameter)",
        "Upgraded layers of version 1 (V1LayerParameter)",
    ]


INPUT = """layer {
  name: "input"
  type: "Input"
  top: "a"
  top: "b"
  input_param {
    shape {
      dim: 1
      dim: 2
      dim: 3
      dim: 4
    }
    shape {
      dim: 5
      dim: 6
      dim: 7
      dim: 8
    }
  }
}
layer {
  name: "first"
}
"""


@pytest.mark.parametrize(
    "old",
    [
        "layer { name: 'first' } input: 'a' input: 'b' input_dim: [1, 2, 3, 4, 5, 6, 7, 8]",
        "input: 'a' input: 'b' input_shape { dim: [1, 2, 3, 4] } input_shape { dim: [5, 6, 7, 8] }"
        "layer { name: 'first' }",
    ],
)
def test_inputs_become_a_layer_that_comes_first(old: str) -> None:
    assert upgraded(old) == INPUT


def test_inputs_without_a_shape_vanish() -> None:
    assert upgraded("input: 'a' layer { name: 'first' }") == 'layer {\n  name: "first"\n}\n'


def test_three_params_of_a_batch_norm_do_not_learn() -> None:
    param = "  param {\n    lr_mult: 0\n    decay_mult: 0\n  }\n"
    assert upgraded("layer { type: 'BatchNorm' param {} param { lr_mult: 2 } param {} }") == (
        f'layer {{\n  type: "BatchNorm"\n{param * 3}}}\n'
    )
    for text in ("layer { type: 'BatchNorm' param {} }", "layer { param {} param {} param {} }"):
        assert upgraded(text) == text_of(parse(text, NetParameter, "net"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("layers { } layer { }", "the net has both 'layer' and, of older nets, 'layers'"),
        ("layers { layer { name: 'a' type: 'foo' } }", "layer 'a': version 0 has no type 'foo'"),
        ("input: 'a' input_dim: [1, 2, 3]", "1 inputs need 4 input_dim each, 3 given"),
        ("input: 'a' input_shape { } input_shape { }", "1 inputs have 2 input_shape"),
        (
            "layers { layer { name: 'p' type: 'padding' } bottom: 'x' top: 'y' }"
            "layers { layer { name: 'r' type: 'relu' } bottom: 'y' top: 'y' }",
            "layer 'r' (relu) cannot take the padding of 'y'",
        ),
        (
            "layers { layer { name: 'p' type: 'padding' } bottom: 'x' }",
            "layer 'p' (padding) has one bottom and one top",
        ),
    ],
)
def test_a_net_that_contradicts_itself_is_refused(text: str, error: str) -> None:
    with pytest.raises(CaffeError) as raised:
        upgraded(text)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("SGD", "SGD"), ("NESTEROV", "Nesterov"), ("ADAGRAD", "AdaGrad")),
        *(("RMSPROP", "RMSProp"), ("ADADELTA", "AdaDelta"), ("ADAM", "Adam")),
    ],
)
def test_a_solvers_type_was_an_enum(old: str, new: str) -> None:
    solver = parse(f"solver_type: {old}", SolverParameter, "solver")
    assert text_of(upgrade_solver(solver)) == f'type: "{new}"\n'


@pytest.mark.parametrize("field", ["net_param", "train_net_param", "test_net_param"])
def test_the_nets_in_a_solver_are_upgraded(field: str) -> None:
    solver = parse(f"{field} {{ {LENET_V0} }}", SolverParameter, "solver")
    indented = "".join(f"  {line}\n" for line in LENET_V2.splitlines())
    assert text_of(upgrade_solver(solver)) == f"{field} {{\n{indented}}}\n"
