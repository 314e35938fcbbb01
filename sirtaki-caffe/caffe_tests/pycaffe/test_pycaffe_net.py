"""Nets as scripts use them: NumPy arrays that are read and written in place."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe_tests.nets import inputs, loss, product
from sirtaki_caffe.errors import CaffeError

RELU = 'layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }\n'
TRAINED = inputs("data", (2, 3), "target", (2, 2)) + product("a", "data", 4) + RELU
TRAINED += product("b", "a", 2) + loss("b", "target")
DEPLOY = "force_backward: true\n" + inputs("data", (2, 3)) + product("a", "data", 4) + RELU
DEPLOY += product("b", "a", 2)


def net_of(folder: Path, text: str, phase: int = caffe.TEST) -> caffe.Net:
    path = folder / "net.prototxt"
    path.write_text(text)
    caffe.set_random_seed(1)
    return caffe.Net(str(path), phase)


@pytest.fixture
def deploy(tmp_path: Path) -> caffe.Net:
    return net_of(tmp_path, DEPLOY)


@pytest.fixture
def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def by_hand(net: caffe.Net, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (w1, b1), (w2, b2) = ((blob.data for blob in net.params[name]) for name in ("a", "b"))
    hidden = np.maximum(data @ w1.T + b1, 0)
    return hidden, hidden @ w2.T + b2


def test_what_a_net_has(deploy: caffe.Net) -> None:
    assert isinstance(deploy.blobs, OrderedDict)
    assert list(deploy.blobs) == ["data", "a", "b"]
    assert list(deploy.params) == ["a", "b"]
    assert [blob.shape for blob in deploy.params["a"]] == [(4, 3), (4,)]
    assert deploy.inputs == ["data"]
    assert deploy.outputs == ["b"]
    assert list(deploy._layer_names) == ["input", "a", "relu", "b"]
    assert [layer.type for layer in deploy.layers][1:3] == ["InnerProduct", "ReLU"]
    assert deploy.layer_dict["b"].blobs[1].shape == (2,)
    assert deploy.top_names["relu"] == ["a"]
    assert deploy.bottom_names["b"] == ["a"]


def test_blobs_have_four_sizes_where_scripts_want_these(deploy: caffe.Net) -> None:
    blob = deploy.blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 3, 1, 1, 6)
    blob.reshape(1, 1, 1, 1, 5)
    with pytest.raises(ValueError, match="5 axes"):
        assert blob.num


def test_data_is_written_in_place_and_run(deploy: caffe.Net, data: np.ndarray) -> None:
    deploy.blobs["data"].data[...] = data
    found = deploy.forward()
    assert list(found) == ["b"]
    np.testing.assert_allclose(found["b"], by_hand(deploy, data)[1], rtol=1e-5)
    np.testing.assert_allclose(deploy.blobs["a"].data, by_hand(deploy, data)[0], rtol=1e-5)


def test_weights_are_written_in_place(deploy: caffe.Net, data: np.ndarray) -> None:
    deploy.params["b"][0].data[...] = 0
    deploy.params["b"][1].data[:] = [3, 4]
    assert np.array_equal(deploy.forward(data=data)["b"], [[3, 4], [3, 4]])


def test_an_array_that_was_asked_for_shows_later_forwards(
    deploy: caffe.Net, data: np.ndarray
) -> None:
    hidden = deploy.blobs["a"].data
    deploy.forward(data=data)
    np.testing.assert_allclose(hidden, by_hand(deploy, data)[0], rtol=1e-5)
    deploy.forward(data=2 * data)
    np.testing.assert_allclose(hidden, by_hand(deploy, 2 * data)[0], rtol=1e-5)


def test_a_part_runs_on_what_a_script_wrote(deploy: caffe.Net, data: np.ndarray) -> None:
    assert list(deploy.forward(end="a", data=data)) == ["a"]
    assert (deploy.blobs["a"].data < 0).any()
    deploy.blobs["a"].data[...] = 1
    found = deploy.forward(start="b", blobs=["a"])
    assert list(found) == ["a", "b"]
    w, b = (blob.data for blob in deploy.params["b"])
    np.testing.assert_allclose(found["b"], np.ones((2, 4)) @ w.T + b, rtol=1e-5)


def test_gradients_that_a_script_wrote_go_backwards(deploy: caffe.Net, data: np.ndarray) -> None:
    hidden = deploy.forward(blobs=["a"], data=data)["a"] > 0
    deploy.blobs["b"].diff[...] = 1
    found = deploy.backward(diffs=["a"])
    weights = [deploy.params[name][0].data for name in ("a", "b")]
    at_hidden = (np.ones((2, 2)) @ weights[1]) * hidden
    np.testing.assert_allclose(found["a"], at_hidden, rtol=1e-5)
    np.testing.assert_allclose(found["data"], at_hidden @ weights[0], rtol=1e-5)
    np.testing.assert_allclose(deploy.params["a"][0].diff, at_hidden.T @ data, rtol=1e-5)


def test_backward_begins_at_a_layer_as_when_dreaming(deploy: caffe.Net, data: np.ndarray) -> None:
    deploy.forward(end="a", data=data)
    deploy.blobs["a"].diff[:] = deploy.blobs["a"].data
    deploy.backward(start="a")
    w = deploy.params["a"][0].data
    np.testing.assert_allclose(deploy.blobs["data"].diff, deploy.blobs["a"].data @ w, rtol=1e-5)
    assert deploy.backward(start="a", end="a")["data"].shape == (2, 3)


def test_backward_can_be_repeated_with_other_gradients(deploy: caffe.Net, data: np.ndarray) -> None:
    deploy.forward(data=data)
    single = []
    for unit in range(2):
        deploy.blobs["b"].diff[...] = 0
        deploy.blobs["b"].diff[:, unit] = 1
        single.append(deploy.backward()["data"].copy())
    both = deploy.backward(b=np.ones((2, 2)))["data"]
    np.testing.assert_allclose(both, single[0] + single[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(deploy.params["b"][1].diff, [4, 4])
    deploy.clear_param_diffs()
    assert not deploy.params["b"][1].diff.any()


def test_gradients_are_right_where_a_layer_in_place_keeps_what_it_read(tmp_path: Path) -> None:
    prelu = RELU.replace('"ReLU"', '"PReLU"')
    net = net_of(tmp_path, DEPLOY.replace(RELU, prelu))
    data = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    assert net.blobs["a"].data.shape == (2, 4)
    net.forward(end="a", data=data)
    before = net.blobs["a"].data.copy()
    net.forward(start="relu")
    net.blobs["b"].diff[...] = 1
    net.backward()
    after = np.ones((2, 2)) @ net.params["b"][0].data
    slope = np.where(before > 0, 1, 0.25)
    np.testing.assert_allclose(net.blobs["a"].diff, after * slope, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"dta": np.zeros((2, 3))}, r"\['dta'\] given, the net's inputs are \['data'\]"),
        ({"data": np.zeros((5, 3))}, r"'data' has shape \[5, 3\], its blob \[2, 3\]"),
        ({"start": "nowhere"}, "no layer 'nowhere'"),
        ({"blobs": ["nowhere"]}, "no blob 'nowhere'"),
    ],
)
def test_what_a_net_does_not_have_is_named(deploy: caffe.Net, given: dict, why: str) -> None:
    with pytest.raises(CaffeError, match=why):
        deploy.forward(**given)


def test_any_number_of_items_run_in_batches(deploy: caffe.Net) -> None:
    items = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    found = deploy.forward_all(blobs=["a"], data=items)
    np.testing.assert_allclose(found["a"], by_hand(deploy, items)[0], rtol=1e-5)
    np.testing.assert_allclose(found["b"], by_hand(deploy, items)[1], rtol=1e-5)
    outputs, gradients = deploy.forward_backward_all(data=items, b=np.ones((5, 2)))
    assert outputs["b"].shape == (5, 2)
    hidden = by_hand(deploy, items)[0] > 0
    w1, w2 = (deploy.params[name][0].data for name in ("a", "b"))
    np.testing.assert_allclose(
        gradients["data"], ((np.ones((5, 2)) @ w2) * hidden) @ w1, rtol=1e-4, atol=1e-6
    )


def test_a_net_is_reshaped_by_its_input(deploy: caffe.Net) -> None:
    deploy.blobs["data"].reshape(7, 3)
    deploy.reshape()
    assert deploy.blobs["b"].shape == (7, 2)
    items = np.ones((7, 3), np.float32)
    assert deploy.forward(data=items)["b"].shape == (7, 2)


@pytest.mark.parametrize("suffix", ["caffemodel", "caffemodel.h5"])
def test_weights_are_saved_and_loaded(tmp_path: Path, deploy: caffe.Net, suffix: str) -> None:
    path = tmp_path / f"weights.{suffix}"
    (deploy.save_hdf5 if suffix.endswith("h5") else deploy.save)(path)
    other = net_of(tmp_path, DEPLOY)
    other.params["a"][0].data[...] = 0
    (other.load_hdf5 if suffix.endswith("h5") else other.copy_from)(str(path))
    old = caffe.Net(str(tmp_path / "net.prototxt"), str(path), caffe.TEST)
    named = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, weights=str(path))
    for net in (other, old, named):
        for name in ("a", "b"):
            for mine, given in zip(net.params[name], deploy.params[name], strict=True):
                assert np.array_equal(mine.data, given.data)


def test_a_batch_norm_that_gets_a_scale_from_a_file_shows_it(tmp_path: Path) -> None:
    text = inputs("data", (2, 3)) + 'layer { name: "n" type: "BatchNorm" bottom: "data" top: "n" }'
    net_of(tmp_path, 'engine: "MKLDNN"\n' + text).save(tmp_path / "w.caffemodel")
    net = net_of(tmp_path, text)
    assert len(net.params["n"]) == 3
    net.copy_from(tmp_path / "w.caffemodel")
    assert len(net.params["n"]) == 5
    assert len(net.layer_dict["n"].blobs) == 5


def test_hdf5_is_written_to_any_name_and_known_by_its_bytes(
    tmp_path: Path, deploy: caffe.Net
) -> None:
    name, (weights, *_) = next(iter(deploy.params.items()))
    saved = weights.data.copy()
    deploy.save_hdf5(tmp_path / "plain")
    weights.data[...] = 0
    deploy.load_hdf5(tmp_path / "plain")
    assert np.array_equal(deploy.params[name][0].data, saved)
    assert saved.any()


def test_nets_share_their_weights(tmp_path: Path, deploy: caffe.Net) -> None:
    other = net_of(tmp_path, TRAINED, caffe.TRAIN)
    other.share_with(deploy)
    deploy.params["a"][0].data[0, 0] = 42
    assert other.params["a"][0].data[0, 0] == 42


def test_the_gradient_of_a_loss_is_its_weight_unless_a_script_writes_it(tmp_path: Path) -> None:
    net = net_of(tmp_path, TRAINED, caffe.TRAIN)
    data = {"data": np.ones((2, 3)), "target": np.zeros((2, 2))}
    found = net.forward(**data)["loss"]
    assert found.shape == ()
    net.backward()
    once = net.params["b"][0].diff.copy()
    net.clear_param_diffs()
    assert net.blobs["loss"].diff == 1
    net.blobs["loss"].diff[...] = 3
    net.forward(**data)
    net.backward()
    np.testing.assert_allclose(net.params["b"][0].diff, 3 * once, rtol=1e-6)


def test_a_phase_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(DEPLOY)
    with pytest.raises(CaffeError, match=r"needs a phase: caffe\.TRAIN or caffe\.TEST"):
        caffe.Net(path)


def test_memory_data_take_arrays(tmp_path: Path) -> None:
    text = 'layer { name: "m" type: "MemoryData" top: "data" top: "label" '
    text += "memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 } }"
    net = net_of(tmp_path, text, caffe.TRAIN)
    images = np.arange(16, dtype=np.float32).reshape(4, 1, 2, 2)
    net.set_input_arrays(images, np.arange(4, dtype=np.float32))
    net.forward()
    assert np.array_equal(net.forward()["label"], [2, 3])
    assert np.array_equal(net.blobs["data"].data, images[2:])


def test_the_names_of_the_module() -> None:
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)
    assert "Convolution" in caffe.layer_type_list()
    assert "Python" in caffe.layer_type_list()
    assert caffe.__version__ == "1.0.0"
    caffe.set_mode_cpu()
    caffe.set_device(0)


def test_the_names_are_in_our_package_too() -> None:
    import sirtaki_caffe as ours

    assert ours.Net is caffe.Net
    assert ours.io.Transformer is caffe.io.Transformer
    with pytest.raises(AttributeError, match="no attribute 'Nte'"):
        assert ours.Nte
