"""Blobs that are read more than once are split, under exact names."""

from __future__ import annotations

import pytest

from caffe_tests.nets import build, fill, inputs, loss, message, product
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.net.splits import insert_splits


def lines(text: str) -> list[str]:
    net = insert_splits(message(text))
    return [f"{n.name}: {' '.join(n.bottom)} -> {' '.join(n.top)}" for n in net.layer]


def test_a_blob_that_is_read_once_is_not_split() -> None:
    assert lines(inputs("data", (2, 3)) + product("ip", "data", 2)) == [
        "input:  -> data",
        "ip: data -> ip",
    ]


def test_each_reader_gets_a_part_of_its_own() -> None:
    text = inputs("label", (2, 2), "data", (2, 3)) + "".join(
        product(f"ip{i}", "data", 2) for i in range(3)
    )
    assert lines(text) == [
        "input:  -> label data",
        "data_input_1_split: data -> data_input_1_split_0 data_input_1_split_1 "
        "data_input_1_split_2",
        "ip0: data_input_1_split_0 -> ip0",
        "ip1: data_input_1_split_1 -> ip1",
        "ip2: data_input_1_split_2 -> ip2",
    ]


def test_after_a_layer_in_place_its_own_name_is_in_the_split() -> None:
    relu = 'layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }\n'
    text = inputs("data", (2, 3)) + product("ip", "data", 2) + relu
    text += product("a", "ip", 2) + product("b", "ip", 2)
    assert lines(text)[2:] == [
        "relu: ip -> ip",
        "ip_relu_0_split: ip -> ip_relu_0_split_0 ip_relu_0_split_1",
        "a: ip_relu_0_split_0 -> a",
        "b: ip_relu_0_split_1 -> b",
    ]


def test_a_layer_that_reads_a_blob_twice_gets_two_parts() -> None:
    text = inputs("a", (2, 3)) + loss("a", "a")
    assert lines(text)[1:] == [
        "a_input_0_split: a -> a_input_0_split_0 a_input_0_split_1",
        "loss: a_input_0_split_0 a_input_0_split_1 -> loss",
    ]


def test_a_loss_weight_is_one_more_use_and_goes_to_the_first_part() -> None:
    text = inputs("data", (2, 3), "target", (2, 2))
    text += product("ip", "data", 2, more="loss_weight: 0.5") + loss("ip", "target")
    net = insert_splits(message(text))
    split = net.layer[2]
    assert split.name == "ip_ip_0_split"
    assert list(split.top) == ["ip_ip_0_split_0", "ip_ip_0_split_1"]
    assert list(split.loss_weight) == [0.5, 0.0]
    assert list(net.layer[1].loss_weight) == [0.0]
    assert list(net.layer[3].bottom) == ["ip_ip_0_split_1", "target"]


def test_gradients_of_the_parts_are_added() -> None:
    text = inputs("data", (2, 3), "target", (2, 2)) + product("ip", "data", 2)
    one = build(text + loss("ip", "target"))
    two = build(text + loss("ip", "target", name="l1") + loss("ip", "target", name="l2"))
    for net in (one, two):
        fill(net)
        net.forward()
        net.backward()
    assert two.learnable[0].diff.allclose(2 * one.learnable[0].diff)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (product("ip", "data", 2), "unknown bottom blob 'data' \\(bottom index 0\\)$"),
        (
            product("a", "b", 2) + product("b", "a", 2),
            "unknown bottom blob 'b' \\(bottom index 0\\); only 'b' makes it",
        ),
        (product("a", "a", 2), "unknown bottom blob 'a'.*only 'a' makes it"),
    ],
    ids=["missing", "cycle", "itself"],
)
def test_a_bottom_that_no_earlier_layer_makes_is_refused(text: str, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        insert_splits(message(text))
