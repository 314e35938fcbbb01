"""Scripts as users of pycaffe wrote them in 2016, and the names that they use."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe import layers as L
from caffe import params as P
from caffe_tests.nets import inputs
from sirtaki_caffe.errors import CaffeError

DEPLOY = (
    inputs("data", (2, 3, 8, 8))
    + 'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { '
    'num_output: 2 kernel_size: 8 weight_filler { type: "gaussian" } } }\n'
    'layer { name: "prob" type: "Softmax" bottom: "conv" top: "prob" }\n'
)


def write_net() -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data, n.label = L.DummyData(
        ntop=2,
        shape=[{"dim": [4, 3]}, {"dim": [4]}],
        data_filler=[{"type": "gaussian"}, {"type": "constant"}],
    )
    n.ip = L.InnerProduct(n.data, num_output=2, weight_filler={"type": "xavier"})
    n.loss = L.SoftmaxWithLoss(n.ip, n.label)
    return n


@pytest.fixture
def solver_file(tmp_path: Path) -> str:
    (tmp_path / "net.prototxt").write_text(str(write_net().to_proto()))
    path = tmp_path / "solver.prototxt"
    path.write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "step" gamma: 0.5 stepsize: 2 '
        f'max_iter: 4 snapshot_prefix: "{tmp_path}/s" solver_mode: CPU random_seed: 1'
    )
    return str(path)


def test_a_net_is_drawn(tmp_path: Path) -> None:
    from caffe import draw

    out = tmp_path / "net.dot"
    draw.draw_net_to_file(write_net().to_proto(), str(out), "TB")
    text = out.read_text()
    assert "rankdir=TB" in text
    assert text.count("shape=box") == 3
    assert draw.draw_net(write_net().to_proto(), "LR", "dot").startswith(b"digraph")


def test_windows_of_images_are_detected(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "deploy.prototxt").write_text(DEPLOY)
    net = caffe.Net(str(tmp_path / "deploy.prototxt"), caffe.TEST)
    net.save(str(tmp_path / "w.caffemodel"))
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    detector = caffe.Detector(
        str(tmp_path / "deploy.prototxt"),
        str(tmp_path / "w.caffemodel"),
        mean=np.array([104.0, 117, 123]),
        raw_scale=255,
        channel_swap=(2, 1, 0),
    )
    windows = [(0, 0, 8, 8), (4, 10, 12, 18), (1, 1, 17, 17)]
    found = detector.detect_windows([(str(tmp_path / "a.png"), windows)])
    assert [each["window"] for each in found] == windows
    assert {each["filename"] for each in found} == {str(tmp_path / "a.png")}
    blob = pixels[4:12, 10:18, ::-1].transpose(2, 0, 1) - np.array([104, 117, 123]).reshape(3, 1, 1)
    expected = net.forward(data=np.float32([blob, blob]))["prob"][0].ravel()
    np.testing.assert_allclose(found[1]["prediction"], expected, rtol=1e-3, atol=1e-6)
    with pytest.raises(CaffeError, match="give them to detect_windows"):
        detector.detect_selective_search([str(tmp_path / "a.png")])


def test_an_image_is_classified_with_a_mean_in_a_file(tmp_path: Path) -> None:
    from PIL import Image

    caffe.set_mode_cpu()
    (tmp_path / "deploy.prototxt").write_text(DEPLOY)
    net = caffe.Net(str(tmp_path / "deploy.prototxt"), caffe.TEST)
    net.save(str(tmp_path / "w.caffemodel"))
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    mean = np.random.default_rng(1).uniform(90, 130, (3, 8, 8))
    np.save(tmp_path / "mean.npy", mean)

    classifier = caffe.Classifier(
        str(tmp_path / "deploy.prototxt"),
        str(tmp_path / "w.caffemodel"),
        image_dims=[8, 8],
        mean=np.load(str(tmp_path / "mean.npy")).mean(1).mean(1),
        raw_scale=255,
        channel_swap=[2, 1, 0],
    )
    image = caffe.io.load_image(str(tmp_path / "cat.png"))
    predictions = classifier.predict([image], False)
    names = np.array(["cat", "dog"])
    best = names[predictions[0].flatten().argsort()[-1:-6:-1]]

    blob = pixels[:, :, ::-1].transpose(2, 0, 1) - mean.mean(1).mean(1).reshape(3, 1, 1)
    expected = net.forward(data=np.float32([blob, blob]))["prob"][0].ravel()
    np.testing.assert_allclose(predictions[0].ravel(), expected, rtol=1e-3, atol=1e-6)
    assert list(best) == list(names[expected.argsort()[::-1]])


def test_what_a_window_sees_beyond_the_image_is_the_mean(tmp_path: Path) -> None:
    (tmp_path / "deploy.prototxt").write_text(DEPLOY)
    caffe.Net(str(tmp_path / "deploy.prototxt"), caffe.TEST).save(str(tmp_path / "w.caffemodel"))
    detector = caffe.Detector(
        str(tmp_path / "deploy.prototxt"),
        str(tmp_path / "w.caffemodel"),
        mean=np.array([1.0, 2, 3]),
        channel_swap=(2, 1, 0),
        context_pad=2,
    )
    crop = detector.crop(np.full((20, 20, 3), 9, np.float32), (0, 0, 3, 3))
    assert crop.shape == (8, 8, 3)
    assert crop[0, 0].tolist() == [3, 2, 1]
    assert crop[4, 4].tolist() == [9, 9, 9]
    inside = detector.crop(np.full((20, 20, 3), 9, np.float32), (8, 8, 12, 12))
    assert (inside == 9).all()


def test_a_loop_logs_by_itself_and_callbacks_see_each_iteration(solver_file: str) -> None:
    solver = caffe.get_solver(solver_file)
    seen: list[object] = []
    before = solver.net.params["ip"][0].data.copy()
    solver.add_callback(
        lambda: seen.append("start"),
        lambda: seen.append(
            (
                bool(np.abs(solver.net.params["ip"][0].diff).sum()),
                bool((solver.net.params["ip"][0].data == before).all()),
            )
        ),
    )
    rates, losses = [], np.zeros(4)
    for it in range(4):
        rates.append(solver.lr)
        solver.step(1)
        losses[it] = solver.net.blobs["loss"].data
    assert seen[:2] == ["start", (True, True)]
    assert len(seen) == 8
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.05, 0.05])
    assert (losses > 0).all()


def test_several_solvers_train_side_by_side(solver_file: str) -> None:
    solvers = [("a", caffe.SGDSolver(solver_file)), ("b", caffe.AdamSolver(solver_file))]
    for _ in range(2):
        for _, solver in solvers:
            solver.step(1)
    assert [solver.iter for _, solver in solvers] == [2, 2]
    a, b = (solver.net.params["ip"][0].data for _, solver in solvers)
    assert (a != b).any()


def test_a_net_shares_the_weights_of_a_solver(solver_file: str, tmp_path: Path) -> None:
    solver = caffe.SGDSolver(solver_file)
    other = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    solver.share_weights(other)
    solver.step(1)
    np.testing.assert_array_equal(other.params["ip"][0].data, solver.net.params["ip"][0].data)


def test_net_surgery_makes_a_product_a_convolution(tmp_path: Path) -> None:
    (tmp_path / "full").write_text(
        inputs("data", (1, 3, 4, 4))
        + 'layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { '
        'num_output: 5 weight_filler { type: "gaussian" } } }'
    )
    (tmp_path / "conv").write_text(
        inputs("data", (1, 3, 6, 6))
        + 'layer { name: "fc-conv" type: "Convolution" bottom: "data" top: "out" '
        "convolution_param { num_output: 5 kernel_size: 4 } }"
    )
    full = caffe.Net(str(tmp_path / "full"), caffe.TEST)
    conv = caffe.Net(str(tmp_path / "conv"), caffe.TEST)
    conv.params["fc-conv"][0].data.flat = full.params["fc"][0].data.flat
    conv.params["fc-conv"][1].data[...] = full.params["fc"][1].data
    image = np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)
    out = conv.forward(data=image)["out"]
    np.testing.assert_allclose(
        out[0, :, 1, 2], full.forward(data=image[:, :, 1:5, 2:6])["fc"][0], rtol=1e-4, atol=1e-5
    )


def test_functions_see_each_layer_before_and_after_it_runs(tmp_path: Path) -> None:
    (tmp_path / "net").write_text("force_backward: true\n" + DEPLOY)
    net = caffe.Net(str(tmp_path / "net"), caffe.TEST)
    seen: list[tuple[str, str]] = []
    for name in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, name)(lambda layer, name=name: seen.append((name, net._layer_names[layer])))
    net.forward()
    assert seen[:4] == [
        *((when, "input") for when in ("before_forward", "after_forward")),
        *((when, "conv") for when in ("before_forward", "after_forward")),
    ]
    seen.clear()
    net.backward()
    assert [layer for _, layer in seen] == ["prob", "prob", "conv", "conv", "input", "input"]
    assert [net._blob_names[i] for i in net._top_ids(1)] == ["conv"]
    assert [net._blob_names[i] for i in net._bottom_ids(1)] == ["data"]
    assert (net._inputs, net._outputs) == ([0], [2])


def test_a_crop_follows_from_the_way_of_two_blobs() -> None:
    from caffe.coord_map import coord_map_from_to, crop

    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, 40, 40]})
    n.conv = L.Convolution(n.data, num_output=2, kernel_size=3, pad=10)
    n.relu = L.ReLU(n.conv, in_place=True)
    n.pool = L.Pooling(n.relu, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.up = L.Deconvolution(
        n.pool, convolution_param={"num_output": 2, "kernel_size": 4, "stride": 2}
    )
    axis, a, b = coord_map_from_to(n.up, n.data)
    # Of `up`, place 10 lies where place 0 of the image does.
    assert (axis, a, b) == (1, 1, -10)
    n.score = crop(n.up, n.data)
    layer = n.to_proto().layer[-1]
    assert (layer.type, layer.crop_param.axis, list(layer.crop_param.offset)) == ("Crop", 2, [10])
    n.coarse = L.Convolution(n.pool, num_output=2, kernel_size=1)
    with pytest.raises(AssertionError, match="scale mismatch"):
        crop(n.coarse, n.data)


def test_nccl_says_what_to_use_instead(solver_file: str) -> None:
    with pytest.raises(CaffeError, match=r"sirtaki run -np 4 python train\.py"):
        caffe.NCCL.new_uid()
    with pytest.raises(CaffeError, match=r"call solver.step\(n\)"):
        caffe.NCCL(None, "uid")
    caffe.set_solver_count(2)
    caffe.set_solver_rank(1)
    caffe.set_multiprocess(True)
    assert (caffe.solver_count(), caffe.solver_rank()) == (2, 1)
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)


def test_a_timer_measures_milliseconds() -> None:
    timer = caffe.Timer()
    timer.stop()
    assert timer.ms == 0
    timer.start()
    timer.stop()
    assert timer.ms > 0


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("draw", "draw_net_to_file"), ("net_spec", "NetSpec"), ("classifier", "Classifier")),
        *(("detector", "Detector"), ("coord_map", "crop"), ("pycaffe", "SGDSolver")),
        ("_caffe", "Net"),
    ],
)
def test_modules_have_their_names(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"caffe.{module}"), name)
