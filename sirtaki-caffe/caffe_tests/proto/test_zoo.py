"""Well-known nets are read whole, and have the sizes that were published for them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from caffe_tests.zoo import NETS, googlenet
from sirtaki_caffe.data.annotated.label_map import read_label_map
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import parse, read_net, read_phases, text_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("data", ["dummy", "lmdb", "deploy"])
@pytest.mark.parametrize("name", NETS)
def test_a_well_known_net_is_read_and_written_whole(name: str, data: str) -> None:
    written = NETS[name][0](data)
    net = parse(written.text, NetParameter, name)
    assert len(net.layer) == written.text.count("\nlayer {")
    assert parse(text_of(net), NetParameter, name) == net


@pytest.mark.parametrize("name", NETS)
def test_a_well_known_net_has_as_many_parameters_as_published(name: str) -> None:
    write, parameters = NETS[name]
    assert write().parameters == parameters


def test_googlenet_is_smaller_without_its_heads() -> None:
    assert googlenet("deploy").parameters == 6998552


@pytest.mark.parametrize("name", sorted(NETS.keys() - {"googlenet_v3"}))
def test_opencv_reads_what_we_write(name: str) -> None:
    net = parse(NETS[name][0]("deploy").text, NetParameter, name)
    theirs = cv2.dnn.readNetFromCaffe(np.frombuffer(text_of(net).encode(), np.uint8))
    assert list(theirs.getLayerNames()) == [layer.name for layer in net.layer[1:]]


@pytest.mark.parametrize(
    "path",
    sorted(path.relative_to(ROOT) for path in (ROOT / "examples").rglob("*.prototxt")),
    ids=str,
)
def test_the_files_of_the_examples_are_read(path: Path) -> None:
    if "labelmap" in path.name:
        assert read_label_map(ROOT / path)
    elif "solver" in path.name:
        assert all(solver.ByteSize() > 0 for solver, _ in read_phases(ROOT / path))
    else:
        assert len(read_net(ROOT / path).layer) > 0
