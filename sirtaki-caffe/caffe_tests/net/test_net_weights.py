"""Weights in and out of nets, by the names of layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caffe_tests.nets import build, fill, inputs, loss, product
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.weights import LayerWeights

DATA = inputs("data", (2, 3), "target", (2, 2))
NORM = inputs("data", (4, 3, 2, 2))
SCALE = (
    'layer { name: "scale" type: "Scale" bottom: "norm" top: "scale" '
    "scale_param { bias_term: true } }\n"
)


def norm(parameter: str = "") -> str:
    return (
        'layer { name: "norm" type: "BatchNorm" bottom: "data" top: "norm" '
        f"batch_norm_param {{ {parameter} }} }}\n"
    )


def values(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def blobs(net: Net, layer: str) -> list[np.ndarray]:
    found = next(each for each in net.layers if each.name == layer)
    return [param.data.detach().numpy() for param in found.params]


def test_weights_go_to_the_layer_of_their_name() -> None:
    net = build(DATA + product("a", "data", 4) + product("b", "a", 2))
    kept = [blob.copy() for blob in blobs(net, "a")]
    net.load([LayerWeights("b", "InnerProduct", [values(2, 4), values(2)])])
    assert np.array_equal(blobs(net, "b")[0], values(2, 4))
    assert np.array_equal(blobs(net, "b")[1], values(2))
    assert np.array_equal(blobs(net, "a")[0], kept[0])


def test_layers_that_the_net_does_not_have_are_told() -> None:
    net = build(DATA + product("a", "data", 4))
    lines: list[tuple[str, str]] = []
    net.load([LayerWeights("fc8", "InnerProduct", [values(1)])], lambda *line: lines.append(line))
    assert lines == [("net.cpp", "Ignoring source layer fc8")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([values(4, 3)], "has 2 blobs, the weights have 1 for it"),
        ([values(4, 3), values(4), values(4)], "has 2 blobs, the weights have 3 for it"),
        (
            [values(4, 5), values(4)],
            r"blob 0 has shape 4 3 \(12\), the weights have 4 5 \(20\); .* rename the layer",
        ),
        ([values(3, 4), values(4)], r"blob 0 has shape 4 3 \(12\)"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(given: list[np.ndarray], why: str) -> None:
    net = build(DATA + product("a", "data", 4) + product("b", "a", 2))
    kept = blobs(net, "b")[0].copy()
    fitting = LayerWeights("b", "InnerProduct", [values(2, 4), values(2)])
    with pytest.raises(LayerError, match=f"layer 'a' .*{why}"):
        net.load([fitting, LayerWeights("a", "InnerProduct", given)])
    assert np.array_equal(blobs(net, "b")[0], kept)


def test_old_files_have_four_sizes_with_ones_on_the_left() -> None:
    net = build(DATA + product("a", "data", 4))
    given = [values(1, 1, 4, 3), values(1, 1, 1, 4)]
    net.load([LayerWeights("a", "InnerProduct", given)])
    assert np.array_equal(blobs(net, "a")[0], values(4, 3))
    assert np.array_equal(blobs(net, "a")[1], values(4))
    with pytest.raises(LayerError, match="blob 0"):
        net.load([LayerWeights("a", "InnerProduct", [values(4, 3, 1, 1), values(4)])])


def test_a_shared_blob_may_be_missing_where_it_is_not_owned() -> None:
    text = DATA + product("a", "data", 3, more='param { name: "w" }')
    net = build(text + product("b", "a", 3, more='param { name: "w" }'))
    net.load(
        [
            LayerWeights("a", "", [values(3, 3), values(3)]),
            LayerWeights("b", "", [None, 2 * values(3)]),
        ]
    )
    assert np.array_equal(blobs(net, "b")[0], values(3, 3))
    assert np.array_equal(blobs(net, "b")[1], 2 * values(3))
    with pytest.raises(LayerError, match=r"layer 'b'.*blob 1 is missing"):
        net.load([LayerWeights("b", "", [None, None])])


def test_saved_blobs_tell_owners_and_gradients() -> None:
    text = DATA + product("a", "data", 3, more='param { name: "w" }')
    text += product("b", "a", 3, more='param { name: "w" }') + product("c", "b", 2)
    net = build(text + loss("c", "target"))
    before = net.saved()
    assert list(before) == ["a", "b", "c"]
    assert [[blob.owner for blob in each] for each in before.values()] == [
        [True, True],
        [False, True],
        [True, True],
    ]
    assert all(blob.diff is None for each in before.values() for blob in each)
    fill(net)
    net.forward()
    net.backward()
    saved = net.saved()["b"][0]
    assert saved.diff is not None
    assert np.array_equal(saved.diff, net.learnable[0].diff.numpy())


def test_what_is_saved_can_be_loaded() -> None:
    text = DATA + product("a", "data", 4) + product("b", "a", 2)
    first, second = build(text), build(text, seed=2)
    second.load(
        [LayerWeights(name, "", [b.data for b in each]) for name, each in first.saved().items()]
    )
    for mine, other in zip(first.learnable, second.learnable, strict=True):
        assert mine.data.equal(other.data)


def test_a_test_net_sees_the_weights_of_the_net_that_it_shares_with() -> None:
    train = build(DATA + product("a", "data", 2) + loss("a", "target"))
    other = build(DATA + product("a", "data", 2) + product("own", "data", 2), seed=5)
    own = blobs(other, "own")[0].copy()
    other.share_weights(train)
    with torch.no_grad():
        train.learnable[0].data.fill_(7)
    assert (blobs(other, "a")[0] == 7).all()
    assert np.array_equal(blobs(other, "own")[0], own)


def test_layers_of_other_shapes_do_not_share() -> None:
    train = build(DATA + product("a", "data", 2))
    with pytest.raises(LayerError, match=r"layer 'a'.*blob 0 has shape 3 3 \(9\)"):
        build(DATA + product("a", "data", 3)).share_weights(train)


def file_of_5() -> list[LayerWeights]:
    given = [values(3), values(3), values(1), 10 * values(3), 20 * values(3)]
    return [LayerWeights("norm", "BatchNorm", given)]


def test_five_blobs_of_a_batch_norm_give_scale_and_shift_to_the_scale_after_it() -> None:
    net = build(NORM + norm() + SCALE)
    net.load(file_of_5())
    assert np.array_equal(blobs(net, "norm")[1], values(3))
    assert np.array_equal(blobs(net, "scale")[0], 10 * values(3))
    assert np.array_equal(blobs(net, "scale")[1], 20 * values(3))


def test_five_blobs_of_a_batch_norm_without_scale_make_it_affine() -> None:
    net = build(NORM + norm())
    assert len(net.learnable) == 3
    net.load(file_of_5())
    assert np.array_equal(blobs(net, "norm")[3], 10 * values(3))
    assert net.learnable_names == [f"norm.{index}" for index in range(5)]
    assert [param.learns for param in net.learnable] == [False, False, False, True, True]
    fill(net)
    net.forward()
    y = net.blobs["norm"].data
    assert torch.allclose(
        y.mean((0, 2, 3)), torch.tensor([20.0, 40, 60], dtype=torch.float64), atol=1e-9
    )


def test_three_blobs_leave_an_affine_batch_norm_its_scale() -> None:
    net = build(NORM + norm(), engine="MKLDNN")
    net.load([LayerWeights("norm", "BatchNorm", [values(3), values(3), values(1)])])
    assert np.array_equal(blobs(net, "norm")[0], values(3))
    assert np.array_equal(blobs(net, "norm")[3], [1, 1, 1])
    assert np.array_equal(blobs(net, "norm")[4], [0, 0, 0])


@pytest.mark.parametrize(
    ("text", "engine", "number"),
    [
        (norm(), "", 3),
        (norm() + SCALE, "", 3),
        (norm(), "CAFFE", 3),
        (norm(), "MKLDNN", 5),
        (norm(), "MKL2017", 5),
        (norm(), "MKLDNN:CAFFE", 5),
        (norm() + SCALE, "MKLDNN", 3),
        (norm("bias_term: false"), "", 4),
        (norm("use_weight_bias: false"), "MKLDNN", 3),
        (norm("engine: MKLDNN"), "", 5),
        (norm("engine: CAFFE"), "MKLDNN", 3),
        (norm("filler { value: 0 }"), "", 5),
        (norm("filler { value: 0 }"), "CAFFE", 3),
        (norm("filler { value: 0 }") + SCALE, "", 3),
        (norm().replace("batch_norm_param", 'engine: "MKLDNN" batch_norm_param'), "", 5),
        ("bn_stats_batch_size: 2\n" + norm(), "", 5),
        ('engine: "MKLDNN"\n' + norm(), "", 5),
        ('engine: "MKLDNN"\n' + norm(), "CAFFE", 3),
        (norm().replace('"BatchNorm"', '"MKLBatchNorm"'), "", 5),
    ],
)
def test_a_batch_norm_is_affine_where_intels_engine_makes_it_so(
    text: str, engine: str, number: int
) -> None:
    assert len(blobs(build(NORM + text, engine=engine), "norm")) == number


def test_the_filler_of_a_batch_norm_fills_the_scale_after_it_with_intels_engine() -> None:
    text = NORM + norm("filler { value: 0 }") + SCALE
    assert np.array_equal(blobs(build(text), "scale")[0], [0, 0, 0])
    assert np.array_equal(blobs(build(text, engine="CAFFE"), "scale")[0], [1, 1, 1])
