"""What a net is after building: blobs, params, outputs, and what is refused."""

from __future__ import annotations

import pytest
import torch

from caffe_tests.nets import build, fill, inputs, loss, product
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.proto.schema import TEST

RELU = 'layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }\n'
DATA = inputs("data", (2, 3), "target", (2, 4))


def shared(first: str, second: str, outputs: int = 3) -> str:
    """Two products, whose messages say how they share."""
    text = inputs("data", (2, 3), "target", (2, outputs))
    text += product("a", "data", 3, more=f"param {{ {first} }}")
    return text + product("b", "a", outputs, more=f"param {{ {second} }}") + loss("b", "target")


def test_blobs_are_listed_as_they_are_made() -> None:
    net = build(DATA + product("ip", "data", 4) + RELU + loss("ip", "target"))
    assert list(net.blobs) == ["data", "target", "ip", "loss"]
    assert [net.blobs[name].shape for name in net.blobs] == [(2, 3), (2, 4), (2, 4), ()]
    assert not net.blobs["ip"].data.any()


def test_a_blob_that_is_too_large_is_refused_before_it_is_made() -> None:
    pooling = 'layer { name: "huge" type: "Pooling" bottom: "x" top: "y" '
    pooling += "pooling_param { kernel_size: 4000000 pad: 3999999 } }\n"
    with pytest.raises(LayerError, match=r"layer 'huge'.*at most 2147483647 numbers"):
        build(inputs("x", (1, 1, 8, 8)) + pooling)


def test_outputs_are_what_nothing_reads_in_the_order_of_bytes() -> None:
    text = inputs("data", (2, 3), "unread", (1,))
    text += product("b", "data", 2) + product("a", "data", 2) + product("B", "data", 2)
    assert build(text).outputs == ["B", "a", "b", "unread"]


def test_a_layer_in_place_writes_the_blob_that_it_reads() -> None:
    net = build(DATA + product("ip", "data", 4) + RELU)
    fill(net)
    net.forward(end=1)
    before = net.blobs["ip"].data.clone()
    net.forward(start=2)
    assert net.blobs["ip"].data.equal(before.clamp(min=0))
    assert net.outputs == ["ip", "target"]


def test_a_blob_is_made_by_one_layer() -> None:
    text = DATA + product("a", "data", 4, top="x") + product("b", "data", 4, top="x")
    with pytest.raises(LayerError, match=r"layer 'b'.*'x' is produced by multiple sources"):
        build(text)


def test_a_layer_in_place_whose_bottom_has_another_reader_makes_a_blob_twice() -> None:
    text = DATA + product("ip", "data", 4) + product("early", "ip", 2) + RELU
    with pytest.raises(LayerError, match="'ip' is produced by multiple sources"):
        build(text)


def test_a_layer_in_place_keeps_the_shape() -> None:
    why = r"layer 'ip'.*makes its bottom 'data' of shape \[2, 3\] one of \[2, 4\]; give the top"
    with pytest.raises(LayerError, match=why):
        build(DATA + product("ip", "data", 4, top="data"))


def test_what_a_layer_did_not_foresee_names_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError("not enough memory")

    monkeypatch.setattr("sirtaki_caffe.layers.activations.ReLU.shapes", fail)
    with pytest.raises(LayerError, match=r"layer 'relu' \(ReLU\): cannot be built: not enough"):
        build(DATA + product("ip", "data", 4) + RELU)


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("Convolutoin", "; did you mean 'Convolution'?"),
        ("RelU", "; did you mean 'ReLU'?"),
        ("RELU", "; did you mean 'ReLU'?"),
        ("Nothing of the kind", ""),
    ],
)
def test_an_unknown_type_is_named_and_one_like_it(kind: str, end: str) -> None:
    with pytest.raises(LayerError) as caught:
        build(f'layer {{ name: "x" type: "{kind}" }}')
    assert str(caught.value) == f"layer 'x' ({kind}): this type of layer is not known{end}"


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ('type: "ReLU" bottom: "data" bottom: "target" top: "x"', "takes 1 bottom blobs, 2 are"),
        ('type: "ReLU" bottom: "data"', "takes 1 top blobs, 0 are given"),
        ('type: "EuclideanLoss" bottom: "data" top: "x"', "takes 2 bottom blobs, 1 are given"),
        ('type: "Concat" top: "x"', "takes at least 1 bottom blobs, 0 are given"),
        (
            'type: "ReLU" bottom: "data" top: "x" loss_weight: 1 loss_weight: 2',
            "loss_weight is given 2 times for 1 tops",
        ),
        (
            'type: "ReLU" bottom: "data" top: "x" propagate_down: true propagate_down: true',
            "propagate_down is given 2 times for 1 bottoms",
        ),
        ('type: "ReLU" bottom: "data" top: "x" param { }', "has 1 param for 0 blobs"),
        ('type: "EuclideanLoss" bottom: "data" bottom: "target" top: "x"', "as many elements"),
    ],
)
def test_a_layer_that_does_not_fit_is_named(layer: str, why: str) -> None:
    with pytest.raises(LayerError, match=f"layer 'tested' .*({why})"):
        build(DATA + f'layer {{ name: "tested" {layer} }}')


def test_a_loss_has_a_weight_of_1_and_may_have_no_top() -> None:
    net = build(DATA + product("ip", "data", 4) + loss("ip", "target"))
    assert net.loss_weights == {"loss": 1.0}
    assert list(net.proto.layer[-1].loss_weight) == [1.0]
    without = build(
        DATA
        + product("ip", "data", 4)
        + 'layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "target" }'
    )
    for each in (net, without):
        fill(each)
    assert without.outputs == []
    assert float(without.forward()) == float(net.forward()) > 0


def test_the_loss_is_the_weighted_sum_over_tops() -> None:
    text = DATA + product("ip", "data", 4, more="loss_weight: 0.5")
    net = build(text + loss("ip", "target", more="loss_weight: 3"))
    fill(net)
    total = float(net.forward())
    ip = net.blobs["ip_ip_0_split_0"].data
    expected = 0.5 * ip.sum() + 3 * ((ip - net.blobs["target"].data) ** 2).sum() / 4
    assert total == pytest.approx(float(expected), rel=1e-12)
    assert net.loss_weights == {"ip_ip_0_split_0": 0.5, "loss": 3.0}


def test_params_of_one_name_are_one() -> None:
    net = build(shared('name: "w"', 'name: "w"'))
    assert net.learnable_names == ["a.0", "a.1", "b.1"]
    assert net.layers[1].params[0] is net.layers[2].params[0]


def test_the_gradients_of_layers_that_share_are_added() -> None:
    net = build(shared('name: "w"', 'name: "w"'))
    fill(net)
    net.forward()
    net.backward()
    param = net.learnable[0]
    with torch.no_grad():
        loss_at = []
        for change in (1e-6, -2e-6):
            param.data[1, 2] += change
            loss_at.append(float(net.forward()))
    slope = (loss_at[0] - loss_at[1]) / 2e-6
    assert slope == pytest.approx(float(param.diff[1, 2]), rel=1e-6)


def test_params_are_shared_in_another_shape_if_both_allow_it() -> None:
    reshape = 'layer { name: "r" type: "Reshape" bottom: "data" top: "r" '
    reshape += "reshape_param { shape { dim: 4 dim: 3 } } }"
    text = inputs("data", (2, 6)) + product("a", "data", 2, more='param { name: "w" }') + reshape
    more = 'param { name: "w" share_mode: PERMISSIVE }'
    net = build(text + product("b", "r", 4, more=more))
    first, second = net.layers[-3].params[0], net.layers[-1].params[0]
    assert tuple(first.data.shape) == (2, 6)
    assert tuple(second.data.shape) == (4, 3)
    assert first.data.data_ptr() == second.data.data_ptr()
    assert len(net.learnable) == 3


@pytest.mark.parametrize(
    ("first", "second", "outputs", "why"),
    [
        ('name: "w"', 'name: "w"', 4, r"'w' has shape \[4, 3\], layer 'a'.*\[3, 3\]; share_mode"),
        ('name: "w"', 'name: "w" share_mode: PERMISSIVE', 4, r"\[4, 3\].*\[3, 3\]$"),
        ('name: "w" lr_mult: 2', 'name: "w" lr_mult: 1', 3, "has lr_mult 1, layer 'a'.* 2"),
        ('name: "w" decay_mult: 2', 'name: "w" decay_mult: 0', 3, "has decay_mult 0"),
    ],
)
def test_params_that_cannot_be_shared_are_refused(
    first: str, second: str, outputs: int, why: str
) -> None:
    with pytest.raises(LayerError, match=why):
        build(shared(first, second, outputs))


def test_a_multiplier_may_be_given_by_any_layer_that_shares() -> None:
    net = build(shared('name: "w"', 'name: "w" lr_mult: 3 decay_mult: 0'))
    assert (net.learnable[0].lr_mult, net.learnable[0].decay_mult) == (3.0, 0.0)


def test_lines_of_building_are_those_that_log_readers_know() -> None:
    lines: list[str] = []
    text = 'name: "small"\n' + DATA + product("ip", "data", 4) + RELU + loss("ip", "target")
    build(text, dtype=torch.float32, log=lambda source, line: lines.append(f"{source}] {line}"))
    assert lines[0].startswith('net.cpp] Initializing net from parameters: \nname: "small"\n')
    assert lines[1:] == [
        "layer_factory.hpp] Creating layer input",
        "net.cpp] Creating Layer input",
        "net.cpp] input -> data",
        "net.cpp] input -> target",
        "net.cpp] Setting up input",
        "net.cpp] Top shape: 2 3 (6)",
        "net.cpp] Top shape: 2 4 (8)",
        "net.cpp] Memory required for data: 56",
        "layer_factory.hpp] Creating layer ip",
        "net.cpp] Creating Layer ip",
        "net.cpp] ip <- data",
        "net.cpp] ip -> ip",
        "net.cpp] Setting up ip",
        "net.cpp] Top shape: 2 4 (8)",
        "net.cpp] Memory required for data: 88",
        "layer_factory.hpp] Creating layer relu",
        "net.cpp] Creating Layer relu",
        "net.cpp] relu <- ip",
        "net.cpp] relu -> ip (in-place)",
        "net.cpp] Setting up relu",
        "net.cpp] Top shape: 2 4 (8)",
        "net.cpp] Memory required for data: 120",
        "layer_factory.hpp] Creating layer loss",
        "net.cpp] Creating Layer loss",
        "net.cpp] loss <- ip",
        "net.cpp] loss <- target",
        "net.cpp] loss -> loss",
        "net.cpp] Setting up loss",
        "net.cpp] Top shape: (1)",
        "net.cpp]     with loss weight 1",
        "net.cpp] Memory required for data: 124",
        "net.cpp] loss needs backward computation.",
        "net.cpp] relu needs backward computation.",
        "net.cpp] ip needs backward computation.",
        "net.cpp] input does not need backward computation.",
        "net.cpp] This network produces output loss",
        "net.cpp] Network initialization done.",
    ]


def test_shapes_follow_an_input_that_is_given_another_one() -> None:
    net = build(DATA + product("ip", "data", 4) + RELU, phase=TEST)
    net.blobs["data"].reshape((5, 3))
    net.reshape()
    assert net.blobs["ip"].shape == (5, 4)
    net.forward()
    assert net.blobs["ip"].shape == (5, 4)


def test_errors_of_running_name_the_layer() -> None:
    net = build(DATA + product("ip", "data", 4) + loss("ip", "target"))
    net.blobs["data"].reshape((2, 5))
    with pytest.raises(LayerError, match=r"layer 'ip' \(InnerProduct\)"):
        net.forward()
    with pytest.raises(LayerError, match=r"layer 'ip' \(InnerProduct\): backward failed"):
        net.backward()


def test_the_same_seed_makes_the_same_weights() -> None:
    text = DATA + product("ip", "data", 4)
    first, second, other = build(text), build(text), build(text, seed=7)
    assert first.learnable[0].data.equal(second.learnable[0].data)
    assert not first.learnable[0].data.equal(other.learnable[0].data)


def test_an_input_without_a_shape_is_an_empty_blob() -> None:
    net = build('layer { name: "i" type: "Input" top: "a" top: "b" }\n')
    assert [tuple(net.blobs[name].shape) for name in ("a", "b")] == [(0,), (0,)]
