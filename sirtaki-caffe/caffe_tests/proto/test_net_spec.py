"""Nets that are written in Python."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import text_of
from sirtaki_caffe.pycaffe.net_spec import Function, NetSpec, Top, layers, params, to_proto

L, P = layers, params


def same(net: object, text: str) -> None:
    assert text_of(net) == text_of(text_format.Parse(text, NetParameter()))


def test_a_net_has_the_names_that_were_assigned() -> None:
    n = NetSpec()
    n.data, n.label = L.Data(
        batch_size=64,
        backend=P.Data.LMDB,
        source="mnist",
        transform_param={"scale": 1.0 / 256},
        include={"phase": 0},
        ntop=2,
    )
    n.conv1 = L.Convolution(
        n.data, kernel_size=5, num_output=20, weight_filler={"type": "xavier"}, pad=[1, 2]
    )
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(
        n.pool1, num_output=10, param=[{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]
    )
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.loss = L.SoftmaxWithLoss(
        n.relu1, n.label, loss_weight=2, loss_param={"normalization": P.Loss.FULL}
    )
    same(
        n.to_proto(),
        """
        layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
          transform_param { scale: 0.00390625 }
          data_param { source: "mnist" batch_size: 64 backend: LMDB } }
        layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param {
          num_output: 20 kernel_size: 5 pad: 1 pad: 2 weight_filler { type: "xavier" } } }
        layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
          pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
        layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
          param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
          inner_product_param { num_output: 10 } }
        layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss"
          loss_weight: 2 loss_param { normalization: FULL } }
        """,
    )


def test_names_are_made_up_for_what_has_none() -> None:
    data, label = L.DummyData(shape=[{"dim": [2, 3]}, {"dim": [2]}], ntop=2)
    first = L.ReLU(L.InnerProduct(data, num_output=2), in_place=True)
    second = L.InnerProduct(first, num_output=3, name="named")
    text = """
        layer { name: "DummyData1" type: "DummyData" top: "DummyData1" top: "DummyData2"
          dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
        layer { name: "InnerProduct1" type: "InnerProduct" bottom: "DummyData1"
          top: "InnerProduct1" inner_product_param { num_output: 2 } }
        layer { name: "ReLU1" type: "ReLU" bottom: "InnerProduct1" top: "InnerProduct1" }
        layer { name: "named" type: "InnerProduct" bottom: "InnerProduct1" top: "InnerProduct2"
          inner_product_param { num_output: 3 } }
        layer { name: "EuclideanLoss1" type: "EuclideanLoss" bottom: "InnerProduct2"
          bottom: "DummyData2" top: "EuclideanLoss1" }
        """
    loss = L.EuclideanLoss(second, label)
    same(to_proto(loss), text)
    same(loss.to_proto(), text)


def test_a_layer_without_tops_is_assigned_itself() -> None:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [1, 2]})
    n.quiet = L.Silence(n.data, ntop=0)
    assert isinstance(n.quiet, Function)
    same(
        n.to_proto(),
        """layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 } } }
        layer { name: "quiet" type: "Silence" bottom: "data" }""",
    )


def test_a_python_layers_own_fields_come_before_the_layers() -> None:
    n = NetSpec()
    n.a = L.Python(module="m", layer="C", param_str="{}", ntop=1, propagate_down=[True, False])
    same(
        n.to_proto(),
        """layer { name: "a" type: "Python" top: "a" propagate_down: true propagate_down: false
        python_param { module: "m" layer: "C" param_str: "{}" } }""",
    )


def test_blobs_are_reached_as_items_too() -> None:
    n = NetSpec()
    n["a/b"] = L.Input()
    assert isinstance(n["a/b"], Top)
    n.c = L.ReLU(n["a/b"])
    assert list(n.tops) == ["a/b", "c"]
    del n.c
    del n["a/b"]
    assert list(n.tops) == []
    with pytest.raises(AttributeError, match="the net has no blob 'c'"):
        _ = n.c


def test_a_long_net_is_no_recursion() -> None:
    top = L.Input()
    for _ in range(3000):
        top = L.ReLU(top)
    assert len(to_proto(top).layer) == 3001


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"ReLU input 0 is not a Top .*str.*give the blob itself"):
        L.ReLU("data")
    with pytest.raises(TypeError, match=r"ReLU input 0 is not a Top .*tuple.*name one"):
        L.ReLU(L.Data(ntop=2))
    with pytest.raises(AttributeError, match="LayerParameter has no field 'kernal_size'"):
        to_proto(L.Convolution(kernal_size=3))
    with pytest.raises(AttributeError, match="FillerParameter has no field 'typ'"):
        to_proto(L.Convolution(weight_filler={"typ": "xavier"}))
    with pytest.raises(AttributeError, match="Caffe has no message FooParameter"):
        _ = P.Foo
    with pytest.raises(TypeError):
        to_proto(L.Convolution(num_output="many"))
