"""Files of weights and states in binary format: bytes that others write, bytes that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from caffe_tests.proto.wire_by_hand import (
    message,
    number,
    packed,
    real,
    shape,
    text,
    unpacked,
    varint,
)
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import array_of, blob_of, read_mean, write_mean
from sirtaki_caffe.proto.formats import binary
from sirtaki_caffe.proto.schema import BlobProto, NetParameter
from sirtaki_caffe.proto.state import State, read_state, write_state
from sirtaki_caffe.proto.text import parse
from sirtaki_caffe.proto.weights import LayerWeights, Saved, read_weights, write_weights

Array = np.ndarray[Any, Any]

NET = """
name: "two"
layer { name: "data" type: "Data" top: "data" top: "label" phase: TRAIN
  data_param { source: "db" backend: LMDB } }
layer { name: "data_data_0_split" type: "Split" bottom: "data" top: "data_0" top: "data_1"
  phase: TRAIN }
layer { name: "fc" type: "InnerProduct" bottom: "data_0" top: "fc" phase: TRAIN
  param { lr_mult: 1 } param { lr_mult: 2 } propagate_down: true
  inner_product_param { num_output: 2 } }
layer { name: "l1" type: "SmoothL1Loss" bottom: "fc" bottom: "data_1" top: "loss" phase: TRAIN
  loss_weight: 1 loss_weight: 0.5 smooth_l1_loss_param { sigma: 3 } engine: "CAFFE" }
"""
WEIGHT = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
BIAS = np.array([-1, 0.5], np.float32)


def golden(*blobs: bytes) -> bytes:
    """NET with these blobs in layer fc, as Caffe writes it."""
    return b"".join(
        [
            text(1, "two"),
            message(
                100,
                *(text(1, "data"), text(2, "Data"), text(4, "data"), text(4, "label")),
                varint(10, 0),
                message(107, text(1, "db"), varint(8, 1)),
            ),
            message(
                100,
                *(text(1, "data_data_0_split"), text(2, "Split"), text(3, "data")),
                *(text(4, "data_0"), text(4, "data_1"), varint(10, 0)),
            ),
            message(
                100,
                *(text(1, "fc"), text(2, "InnerProduct"), text(3, "data_0"), text(4, "fc")),
                *(message(6, real(3, 1)), message(6, real(3, 2)), *blobs),
                *(varint(10, 0), varint(11, 1), message(117, varint(1, 2))),
            ),
            message(
                100,
                *(text(1, "l1"), text(2, "SmoothL1Loss"), text(3, "fc"), text(3, "data_1")),
                *(text(4, "loss"), real(5, 1), real(5, 0.5), varint(10, 0)),
                *(message(148, real(1, 3)), text(149, "CAFFE")),
            ),
        ]
    )


PLAIN = (
    message(7, packed(5, WEIGHT.ravel()), shape(2, 3)),
    message(7, packed(5, BIAS), shape(2)),
)


def same(found: list[LayerWeights], *expected: tuple[str, str, list[Array]]) -> None:
    assert [(layer.name, layer.kind) for layer in found] == [each[:2] for each in expected]
    for layer, (_, _, blobs) in zip(found, expected, strict=True):
        assert len(layer.blobs) == len(blobs)
        for blob, right in zip(layer.blobs, blobs, strict=True):
            assert blob.dtype == right.dtype
            assert blob.shape == right.shape
            assert (blob == right).all()


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_weights_are_written_byte_for_byte_as_caffe_does(tmp_path: Path) -> None:
    net = parse(NET, NetParameter, "net")
    path = tmp_path / "net.caffemodel"
    write_weights(path, net, {"fc": [Saved(WEIGHT, None, True), Saved(BIAS, None, False)]})
    assert path.read_bytes() == golden(*PLAIN)


def test_gradients_are_written_behind_the_values(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    write_weights(path, parse(NET, NetParameter, ""), {"fc": [Saved(BIAS, 2 * BIAS, True)]})
    blob = message(7, packed(5, BIAS), packed(6, 2 * BIAS), shape(2))
    assert path.read_bytes() == golden(blob)


def test_doubles_are_written_as_such(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    values = BIAS.astype(np.float64)
    write_weights(path, parse(NET, NetParameter, ""), {"fc": [Saved(values, values, True)]})
    blob = message(7, shape(2), packed(8, BIAS, "d"), packed(9, BIAS, "d"))
    assert path.read_bytes() == golden(blob)


def test_a_number_without_axes_and_an_empty_blob_are_written(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    scalar, empty = np.array(3, np.float32), np.zeros((0, 4), np.float32)
    blobs = {"fc": [Saved(scalar, None, True), Saved(empty, None, True)]}
    write_weights(path, parse(NET, NetParameter, ""), blobs)
    assert path.read_bytes() == golden(message(7, packed(5, [3]), shape()), message(7, shape(0, 4)))
    assert [blob.shape for blob in read_weights(path)[2].blobs] == [(), (0, 4)]


def test_a_layer_whose_text_has_blobs_is_written_with_those_it_has_now(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    net = parse(NET, NetParameter, "")
    net.layer[2].blobs.append(blob_of(WEIGHT))
    write_weights(path, net, {"fc": [Saved(WEIGHT, None, True), Saved(BIAS, None, True)]})
    assert path.read_bytes() == golden(*PLAIN)


def test_a_golden_file_is_the_same_after_reading_and_writing(tmp_path: Path) -> None:
    path = written(tmp_path / "net.caffemodel", golden(*PLAIN))
    net = binary.read_net(path)
    assert net.layer[3].smooth_l1_loss_param.sigma == 3
    assert not net.layer[3].HasField("clip_param")
    binary.write_net(tmp_path / "copy", net)
    assert (tmp_path / "copy").read_bytes() == golden(*PLAIN)


@pytest.mark.parametrize(
    ("blob", "array"),
    [
        (packed(5, BIAS) + shape(2), BIAS),
        (shape(2) + packed(5, BIAS), BIAS),
        (unpacked(5, BIAS) + shape(2), BIAS),
        (packed(5, BIAS[:1]) + shape(2) + unpacked(5, BIAS[1:]), BIAS),
        (unpacked(5, BIAS[:1]) + packed(6, BIAS) + packed(5, BIAS[1:]) + shape(2), BIAS),
        (unpacked(5, range(1000)) + shape(1000), np.arange(1000, dtype=np.float32)),
        (packed(8, BIAS, "d") + shape(2), BIAS.astype(np.float64)),
        (unpacked(8, BIAS, "d") + shape(2), BIAS.astype(np.float64)),
        (varint(4, 2) + varint(1, 1) + packed(5, BIAS), np.zeros((1, 0, 0, 2), np.float32)),
        (packed(5, BIAS) + message(7, varint(1, 1), varint(1, 2)), BIAS[None]),
        (packed(5, [2]) + shape(), np.array(2, np.float32)),
        (packed(5, BIAS) + shape(2) + varint(77, 1) + text(78, "x"), BIAS),
    ],
)
def test_a_blob_is_read_in_every_form(tmp_path: Path, blob: bytes, array: Array) -> None:
    if array.size == 0:
        blob = blob.replace(packed(5, BIAS), b"")
    path = written(tmp_path / "net", message(100, text(1, "a"), text(2, "B"), message(7, blob)))
    same(read_weights(path), ("a", "B", [array]))
    assert (array_of(BlobProto.FromString(blob)) == array).all()


def test_a_blob_of_four_numbers_has_four_axes(tmp_path: Path) -> None:
    legacy = b"".join(varint(field, size) for field, size in enumerate((1, 1, 2, 3), 1))
    blob = legacy + packed(5, WEIGHT.ravel())
    path = written(tmp_path / "net", message(100, message(7, blob)))
    assert (read_weights(path)[0].blobs[0] == WEIGHT.reshape(1, 1, 2, 3)).all()


def test_weights_of_version_1_and_0_are_read(tmp_path: Path) -> None:
    blob = packed(5, BIAS) + shape(2)
    one = message(2, text(4, "conv"), varint(5, 4), message(6, blob), message(6, blob))
    zero = message(2, message(1, text(1, "ip"), text(2, "innerproduct"), message(50, blob)))
    other = message(2, message(1, text(1, "pad"), text(2, "padding")), text(2, "data"))
    path = written(tmp_path / "net", text(1, "old") + one + zero + other)
    same(
        read_weights(path),
        ("conv", "Convolution", [BIAS, BIAS]),
        ("ip", "InnerProduct", [BIAS]),
        ("pad", "padding", []),
    )


def huge(field: int, size: int) -> bytes:
    """The head of a field that says it is longer than the file."""
    return number(field * 8 + 2) + number(size)


def test_the_null_device_holds_no_weights() -> None:
    assert read_weights("/dev/null") == []


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "there are no layers in it"),
        (text(1, "a"), "there are no layers in it"),
        (golden(*PLAIN)[:-1], "is no file of weights, or is cut off: field 100 is longer"),
        (golden(*PLAIN)[:20], "is cut off: field 100 is longer than the file"),
        (b"\xff" * 100, "is cut off: a number of more than 10 bytes"),
        (b"name: 'a'\nlayer {\n}\n", "is cut off: field 13 is of an unknown kind 6"),
        (b"PK\x03\x04" + bytes(100), "is cut off: a field without a number"),
        (varint(1, 8) + text(2, "pytorch"), "a number where bytes are expected"),
        (huge(100, 2**62), "field 100 is longer than the file"),
        (message(100, huge(7, 2**40)), "field 7 says 1099511627776 bytes, 0 are left"),
        (
            message(100, text(1, "a"), message(7, shape(2**40))),
            "blob 0 of layer 'a' has shape [1099511627776] with 0 numbers",
        ),
        (
            message(100, text(1, "a"), message(7, packed(5, BIAS), shape(3))),
            "blob 0 of layer 'a' has shape [3] with 2 numbers",
        ),
        (message(100, message(7, packed(5, BIAS), shape(-1, -2))), "shape [-1, -2] with 2 numbers"),
        (message(100, message(7, shape(*[1] * 33))), "more than 32 axes"),
        (message(100, message(7, text(5, "abc"))), "3 bytes of numbers that have 4 each"),
        (message(100, message(7, varint(5, 1))), "a number where bytes are expected"),
        (message(100, message(7, unpacked(5, BIAS, "d"))), "numbers of a wrong size"),
        (message(100, message(1, b"\xff")), "a name that is not UTF-8"),
        (message(100) * 100_001, "more than 100000 layers"),
    ],
)
def test_a_file_that_holds_no_weights_is_refused(tmp_path: Path, data: bytes, error: str) -> None:
    path = written(tmp_path / "net.caffemodel", data)
    with pytest.raises(CaffeError) as raised:
        read_weights(path)
    assert str(path) in str(raised.value)
    assert error in str(raised.value)


def test_more_than_protobuf_can_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    big = np.broadcast_to(np.float32(0), (2**29,))
    net = parse("layer { name: 'a' }", NetParameter, "")
    path = tmp_path / "big.caffemodel"
    with pytest.raises(CaffeError, match=r"more than 2147483647 bytes.*write HDF5"):
        write_weights(path, net, {"a": [Saved(big, None, True)]})
    with pytest.raises(CaffeError, match=r"more than 2147483647 bytes.*write HDF5"):
        write_state(path, State(1, "a", [big]))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    net = parse("layer { name: 'a' type: 'Clip' }", NetParameter, "")
    net.layer[0].clip_param.min = 1
    path = written(tmp_path / "a", b"before")
    with pytest.raises(CaffeError, match=r"cannot write .*clip_param\.max"):
        write_weights(path, net, {})
    with pytest.raises(CaffeError, match=r"cannot write .*/none/a: No such file or directory"):
        write_weights(tmp_path / "none" / "a", parse(NET, NetParameter, ""), {})
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]


DEPLOY = """
input: "data" input_dim: 2 input_dim: 3 input_dim: 12 input_dim: 12
layer { name: "conv/1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv1" top: "bn" batch_norm_param { eps: 0.01 } }
layer { name: "pool" type: "Pooling" bottom: "bn" top: "pool"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
  inner_product_param { num_output: 5 } }
"""


def test_opencv_reads_our_weights(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shapes = {"conv/1": [(4, 3, 3, 3), (4,)], "bn": [(4,), (4,), (1,)], "fc": [(5, 100), (5,)]}
    values = {
        name: [random.uniform(0.5, 1, shape).astype(np.float32) for shape in each]
        for name, each in shapes.items()
    }
    (tmp_path / "net.prototxt").write_text(DEPLOY)
    path = tmp_path / "net.caffemodel"
    write_weights(
        path,
        parse(DEPLOY, NetParameter, ""),
        {name: [Saved(v, None, True) for v in each] for name, each in values.items()},
    )
    net = cv2.dnn.readNetFromCaffe(str(tmp_path / "net.prototxt"), str(path))
    data = random.standard_normal((2, 3, 12, 12)).astype(np.float32)
    net.setInput(data)
    conv = F.conv2d(torch.from_numpy(data), *map(torch.from_numpy, values["conv/1"]))
    mean, variance, factor = map(torch.from_numpy, values["bn"])
    normal = F.batch_norm(conv, mean / factor, variance / factor, eps=0.01)
    flat = F.max_pool2d(normal, 2).flatten(1)
    expected = F.linear(flat, *map(torch.from_numpy, values["fc"]))
    np.testing.assert_allclose(net.forward(), expected.numpy(), rtol=1e-5, atol=1e-5)


STATE = (
    varint(1, 7)
    + text(2, "net_iter_7.caffemodel")
    + message(3, packed(5, WEIGHT.ravel()), shape(2, 3))
    + message(3, packed(5, BIAS), shape(2))
    + varint(4, 2)
)


def test_a_state_is_written_byte_for_byte_as_caffe_does(tmp_path: Path) -> None:
    path = tmp_path / "s.solverstate"
    write_state(path, State(7, "net_iter_7.caffemodel", [WEIGHT, BIAS], 2))
    assert path.read_bytes() == STATE
    write_state(path, State(7, "net_iter_7.caffemodel", [WEIGHT, BIAS], 2, 0.25, 5))
    assert path.read_bytes() == STATE + real(5, 0.25) + varint(6, 5)


def test_a_state_is_read(tmp_path: Path) -> None:
    state = read_state(written(tmp_path / "s", STATE + real(5, 0.25) + varint(6, 5)))
    assert (state.iteration, state.learned_net) == (7, "net_iter_7.caffemodel")
    assert (state.current_step, state.minimum_loss, state.iter_last_event) == (2, 0.25, 5)
    assert [blob.tolist() for blob in state.history] == [WEIGHT.tolist(), BIAS.tolist()]
    old = read_state(written(tmp_path / "s", varint(1, 7)))
    assert old == State(7, "", [], 0, 1e38, 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "is no solver state: it tells no iteration"),
        (STATE[:-3], "is no solver state, or is cut off"),
        (golden(*PLAIN), "bytes where a number is expected"),
        (varint(1, 7) + message(3, shape(4)), "shape [4] with 0 numbers"),
    ],
)
def test_a_file_that_holds_no_state_is_refused(tmp_path: Path, data: bytes, error: str) -> None:
    with pytest.raises(CaffeError) as raised:
        read_state(written(tmp_path / "s.solverstate", data))
    assert error in str(raised.value)


def test_a_mean_image_is_written_and_read_as_caffe_does(tmp_path: Path) -> None:
    mean = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    legacy = b"".join(varint(field, size) for field, size in enumerate((1, 2, 3, 4), 1))
    path = tmp_path / "mean.binaryproto"
    write_mean(path, mean)
    assert path.read_bytes() == legacy + packed(5, range(24))
    assert (read_mean(path) == mean).all()
    for dims in ((2, 3, 4), (1, 2, 3, 4)):
        assert (read_mean(written(path, packed(5, range(24)) + shape(*dims))) == mean).all()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (packed(5, range(24)) + shape(4, 6), "is no mean image: its shape is [4, 6]"),
        (packed(5, range(24)) + shape(2, 2, 2, 3), "its shape is [2, 2, 2, 3]"),
        (packed(5, range(24)), "shape [] with 24 numbers"),
        (shape(0, 2**40, 2**40), "shape [0, 1099511627776, 1099511627776] with 0 numbers"),
        (b"\xff" * 20, "a number of more than 10 bytes"),
    ],
)
def test_a_file_that_holds_no_mean_is_refused(tmp_path: Path, data: bytes, error: str) -> None:
    with pytest.raises(CaffeError) as raised:
        read_mean(written(tmp_path / "mean", data))
    assert error in str(raised.value)


def test_blobs_become_messages_and_arrays_again() -> None:
    for array in (WEIGHT, np.array(2, np.float32), WEIGHT.astype(np.float64), WEIGHT.T):
        blob = blob_of(array, -array)
        assert list(blob.shape.dim) == list(array.shape)
        kept = blob.double_diff if array.dtype == np.float64 else blob.diff
        assert list(kept) == list(-array.ravel())
        assert (array_of(blob) == array).all()
    with pytest.raises(CaffeError, match=r"a blob of shape \[3\] with 1 numbers"):
        array_of(BlobProto(shape={"dim": [3]}, data=[1]))
