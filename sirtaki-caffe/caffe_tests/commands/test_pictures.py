"""Nets, curves and detections become pictures without Graphviz and without matplotlib."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import caffe
from caffe import draw as caffe_draw
from caffe_tests import zoo
from caffe_tests.commands.test_file_tools import NET, plotted
from sirtaki_caffe.commands.main import main
from sirtaki_caffe.commands.tools import draw
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import parse

SVG = "{http://www.w3.org/2000/svg}"
#: A detector that finds what its one prior is: the left half of the image, of class 1.
DETECTOR = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool"
  pooling_param { global_pooling: true } }
layer { name: "priors" type: "PriorBox" bottom: "pool" bottom: "data" top: "priors"
  prior_box_param { min_size: 4 img_size: 8 step: 4 offset: 0.5 } }
layer { name: "loc" type: "InnerProduct" bottom: "pool" top: "loc"
  inner_product_param { num_output: 4 } }
layer { name: "scores" type: "InnerProduct" bottom: "pool" top: "scores"
  inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "scores" top: "prob" }
layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "prob" bottom: "priors" top: "out"
  detection_output_param { num_classes: 2 code_type: CENTER_SIZE keep_top_k: 5
  nms_param { nms_threshold: 0.4 } confidence_threshold: 0.01 } }
"""


def shapes(text: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(f"{SVG}{kind}"))


@pytest.mark.parametrize("rankdir", ["TB", "BT", "LR", "RL"])
def test_a_net_is_drawn_with_each_layer_and_each_blob_that_is_handed_on(rankdir: str) -> None:
    net = parse(zoo.googlenet().text, NetParameter, "net")
    picture = draw.net_as_svg(net, rankdir)
    words = " ".join(element.text or "" for element in shapes(picture, "text"))
    assert all(layer.name in words for layer in net.layer)
    edges = [e for e in shapes(picture, "path") if e.get("class") == "edge"]
    made = {name for layer in net.layer for name in layer.top}
    handed = sum(
        len(set(layer.bottom) & made)
        for layer in net.layer
        if list(layer.bottom) != list(layer.top)
    )
    assert len(edges) == handed


def test_boxes_of_a_drawn_net_do_not_overlap_and_lie_in_the_picture() -> None:
    picture = draw.net_as_svg(parse(zoo.googlenet().text, NetParameter, "net"), "TB")
    root = ElementTree.fromstring(picture)
    boxes = [
        tuple(float(box.get(side, "")) for side in ("x", "y", "width", "height"))
        for box in root.iter(f"{SVG}rect")
        if box.get("x")
    ]
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)
    for place, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:place]:
            across, down = min(x + w, x2 + w2) - max(x, x2), min(y + h, y2 + h2) - max(y, y2)
            assert min(across, down) <= 0.2  # parts of a layer touch


def test_names_in_a_picture_are_text_and_no_markup() -> None:
    net = NetParameter(name="<b>&")
    net.layer.add(name='<script>"', type="Data", top=["a"])
    picture = draw.net_as_svg(net)
    assert ElementTree.fromstring(picture).findtext(f"{SVG}title") == "<b>&"
    assert shapes(picture, "text")[0].text == '<script>"'


def test_an_svg_of_a_net_needs_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "net.prototxt").write_text(NET)
    assert main(["draw", str(tmp_path / "net.prototxt"), str(tmp_path / "net.svg")]) == 0
    assert "(Pooling)" in (tmp_path / "net.svg").read_text()
    graph = caffe_draw.get_pydot_graph(parse(NET, NetParameter, "net"), "LR")
    assert graph.write_svg(str(tmp_path / "again.svg"))
    assert (tmp_path / "again.svg").read_text() == (tmp_path / "net.svg").read_text()
    assert graph.to_string().startswith("digraph")
    with pytest.raises(CaffeError, match="a png needs the program dot of Graphviz"):
        graph.write_png(str(tmp_path / "net.png"))


def test_an_svg_of_curves_needs_no_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(plotted(tmp_path, "bvlc.log", "out.svg")) == 0
    picture = (tmp_path / "out.svg").read_text()
    words = [element.text for element in shapes(picture, "text")]
    assert {"loss", "test", "learning rate", "iteration", "train"} <= set(words)
    assert main(plotted(tmp_path, "bvlc.log", "out.png")) == 1


def test_a_curve_has_a_gap_where_there_is_no_number() -> None:
    from sirtaki_caffe.commands.tools.curves_svg import svg_of

    curve = ([0, 10, 20, 30, 40], [1.0, 3.0, float("nan"), 2.0, 2.0])
    paths = [e.get("d", "") for e in shapes(svg_of({"loss": [("train", curve)]}), "path")]
    assert [len(re.findall(r",", path)) for path in paths] == [2, 2]
    first = [tuple(map(float, pair.split(","))) for pair in paths[0].removeprefix("M").split()]
    assert first[0][0] < first[1][0]
    assert first[0][1] > first[1][1]  # up is less in SVG


@pytest.fixture
def detector(tmp_path: Path) -> Path:
    (tmp_path / "deploy").write_text(DETECTOR)
    net = caffe.Net(str(tmp_path / "deploy"), caffe.TEST)
    net.params["loc"][1].data[...] = 0
    net.params["scores"][1].data[...] = (0, np.log(9))  # a probability of 0.9
    net.save(str(tmp_path / "weights"))
    (tmp_path / "map").write_text('item { name: "left" label: 1 display_name: "left" }')
    Image.new("RGB", (64, 32), "black").save(tmp_path / "a.jpg")
    return tmp_path


def test_detections_are_drawn_and_listed(detector: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [str(detector / name) for name in ("deploy", "weights", "a.jpg", "out")]
    assert main(["detect", *words, "--labelmap_file", str(detector / "map")]) == 0
    # The prior's middle is at half a step, (2, 2) of 8 pixels, and it has 4 pixels.
    assert capfd.readouterr().out == f"{detector}/a.jpg left 0.900 0 0 32 16\n"
    with Image.open(detector / "out/a.png") as picture:
        assert picture.size == (64, 32)
        assert picture.getpixel((32, 14)) == picture.getpixel((2, 16)) != (0, 0, 0)
        assert picture.getpixel((50, 25)) == (0, 0, 0)


def test_what_is_less_likely_than_the_threshold_is_not_drawn(
    detector: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [str(detector / name) for name in ("deploy", "weights", "a.jpg", "out")]
    assert main(["detect", *words, "--confidence_threshold=0.95"]) == 0
    assert capfd.readouterr().out == ""
    with Image.open(detector / "out/a.png") as picture:
        assert picture.getextrema() == ((0, 0), (0, 0), (0, 0))


def test_a_net_that_is_no_detector_is_refused(
    detector: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = DETECTOR.replace("dim: 1 dim: 3", "dim: 1 dim: 4")
    (detector / "four").write_text(text)
    (detector / "headless").write_text(DETECTOR.partition('layer { name: "out"')[0])
    for name, why in (
        ("four", "one Input of shape (1, 3, height, width), not data [1, 4, 8, 8]"),
        ("headless", "whose one output is a DetectionOutput's, not ['loc', 'priors', 'prob']"),
    ):
        caffe.Net(str(detector / name), caffe.TEST).save(str(detector / "weights"))
        words = [str(detector / each) for each in (name, "weights", "a.jpg", "out")]
        assert main(["detect", *words]) == 1
        assert why in capfd.readouterr().err


@pytest.mark.parametrize(
    ("images", "folder", "why"),
    [
        (("a.jpg", "b/a.jpg"), "out", "would both be written to"),
        (("out/a.png",), "out", "out/a.png would be overwritten: write to another folder"),
    ],
)
def test_no_image_is_overwritten(
    detector: Path,
    capfd: pytest.CaptureFixture[str],
    images: tuple[str, ...],
    folder: str,
    why: str,
) -> None:
    files = [str(detector / name) for name in ("deploy", "weights", *images, folder)]
    assert main(["detect", *files]) == 1
    assert why in capfd.readouterr().err
    assert not (detector / folder).exists()
