"""The tools that upgrade files, draw nets and plot logs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from caffe_tests import zoo
from caffe_tests.proto.test_proto_upgrade import IMAGENET_V0, IMAGENET_V2, LENET_V0, LENET_V2
from caffe_tests.proto.wire_by_hand import message, packed, text, varint
from sirtaki_caffe.commands.main import main
from sirtaki_caffe.commands.tools import draw, plot
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.formats import binary
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import parse


def upgraded(tool: str, folder: Path, content: str | bytes) -> Path:
    """What a tool makes of a file."""
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "old").write_bytes(data)
    assert main([tool, str(folder / "old"), str(folder / "new")]) == 0
    return folder / "new"


@pytest.mark.parametrize(("old", "new"), [(LENET_V0, LENET_V2), (IMAGENET_V0, IMAGENET_V2)])
def test_a_text_net_is_upgraded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert upgraded("upgrade_net_proto_text", tmp_path, old).read_text() == new
    assert f"Wrote upgraded NetParameter text proto to {tmp_path}/new" in capfd.readouterr().err
    assert upgraded("upgrade_net_proto_text", tmp_path, new).read_text() == new
    assert f"File already in latest proto format: {tmp_path}/old" in capfd.readouterr().err


def test_a_text_solver_is_upgraded(tmp_path: Path) -> None:
    path = upgraded("upgrade_solver_proto_text", tmp_path, "solver_type: ADAM snapshot_prefix: 'a'")
    assert path.read_text() == 'snapshot_prefix: "a"\ntype: "Adam"\n'


def test_a_binary_net_is_upgraded_and_keeps_its_blobs_and_fields(tmp_path: Path) -> None:
    blob = varint(1, 1) + varint(4, 2) + packed(5, [1, 2])
    old = (
        text(1, "net")
        + message(2, text(4, "ip"), varint(5, 14), message(6, blob), message(17, varint(1, 2)))
        + varint(5, 1)
        + message(101, message(2, text(1, "InnerProduct")))
    )
    new = (
        *(text(1, "net"), varint(5, 1)),
        message(
            100,
            *(text(1, "ip"), text(2, "InnerProduct")),
            *(message(7, blob), message(117, varint(1, 2))),
        ),
        message(101, message(2, text(1, "InnerProduct"))),
    )
    assert upgraded("upgrade_net_proto_binary", tmp_path, old).read_bytes() == b"".join(new)


@pytest.mark.parametrize(
    "data",
    [
        message(100) * 100_001,
        message(2) * 100_001,
        text(3, "x" * 1000) * 17_000,
        message(100, message(6) * 1_100_000),
        message(100)[:-1] + b"\x05",
        b"\xff" * 20,
        message(1, b"\xff"),
        message(100, message(3, b"\xff")),
    ],
    ids=["layers", "old layers", "inputs", "params", "cut off", "foreign", "name", "bottom"],
)
def test_a_binary_file_that_is_no_net_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "net").write_bytes(data)
    with pytest.raises(CaffeError, match=r".*/net is no binary net, or is cut off: "):
        binary.read_net(tmp_path / "net")


def test_a_tool_says_what_is_wrong_with_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old").write_text("\n nme: 'a'")
    assert main(["upgrade_net_proto_text", str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    error = f"{tmp_path}/old:2:2: NetParameter has no field 'nme'; did you mean 'name'?"
    assert capfd.readouterr().err == f"upgrade_net_proto_text: {error}\n"
    assert not (tmp_path / "new").exists()


NET = """
name: "a \\"net\\""
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 20 kernel_size: 5 stride: 2 pad_h: 1 pad_w: 2 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 3 } }
"""


def test_a_net_is_drawn_as_a_graph() -> None:
    assert draw.dot_of(parse(NET, NetParameter, "net"), "TB") == (
        """digraph "a \\"net\\"" {
  rankdir=TB;
  node [fontname="sans-serif"];
  blob0 [label="conv", shape=ellipse];
  blob1 [label="data", shape=ellipse];
  blob2 [label="pool", shape=ellipse];
  layer0 [label="conv\\n(Convolution)\\n20 outputs\\nkernel 5\\nstride 2\\npad 1x2", shape=box, """
        """style=filled, fillcolor="#ff5050"];
  blob1 -> layer0;
  layer0 -> blob0;
  layer1 [label="relu\\n(ReLU)", shape=box, style=filled, fillcolor="#6495ed"];
  blob0 -> layer1 [dir=both];
  layer2 [label="pool\\n(Pooling)\\nMAX\\nkernel 3\\nstride 1", shape=box, """
        """style=filled, fillcolor="#ff9900"];
  blob0 -> layer2;
  layer2 -> blob2;
}
"""
    )


@pytest.mark.parametrize("name", zoo.NETS)
def test_every_net_of_the_zoo_can_be_drawn(name: str) -> None:
    net = parse(zoo.NETS[name][0]().text, NetParameter, name)
    dot = draw.dot_of(net)
    edges = sum(len(set(each.bottom) | set(each.top)) for each in net.layer)
    assert dot.count(" -> ") == edges
    assert dot.count("shape=box") == len(net.layer)


def test_a_graph_is_written_to_a_file_or_to_the_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    assert main(["draw", str(tmp_path / "net.prototxt")]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith('digraph "a \\"net\\"" {\n  rankdir=LR;\n')
    assert main(["draw", str(tmp_path / "net.prototxt"), str(tmp_path / "net.dot")]) == 0
    assert (tmp_path / "net.dot").read_text() == shown


def test_a_picture_is_drawn_by_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dot").write_text(f"#!/bin/sh\necho $1\nhead -c 7 > {tmp_path}/given\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for kind in ("png", "svg"):
        draw.draw("digraph {}", tmp_path / f"net.{kind}")
        assert (tmp_path / f"net.{kind}").read_text() == f"-T{kind}\n"
        assert (tmp_path / "given").read_text() == "digraph"
    (tmp_path / "dot").write_text("#!/bin/sh\necho wrong >&2\nexit 1\n")
    with pytest.raises(CaffeError, match="dot failed: wrong"):
        draw.draw("digraph {}", tmp_path / "net.png")


def test_a_picture_needs_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CaffeError, match=r"net\.png needs the program dot of Graphviz"):
        draw.draw("digraph {}", tmp_path / "net.png")
    with pytest.raises(CaffeError, match=r"draw writes \.dot, \.png and \.svg"):
        draw.draw("digraph {}", tmp_path / "net.jpg")


BVLC = """I0224 00:32:03.391911  655 solver.cpp:48] Initializing solver from parameters:
base_lr: 0.01
I0224 00:32:03.391911  655 solver.cpp:330] Iteration 0, Testing net (#0)
I0224 00:32:03.391911  655 solver.cpp:397]     Test net output #0: accuracy = 0.1048
I0224 00:32:03.391911  655 solver.cpp:397]     Test net output #1: loss = 2.3541 (* 1 = 2.3541 loss)
I0224 00:32:03.391911  655 solver.cpp:330] Iteration 0, Testing net (#1)
I0224 00:32:03.391911  655 solver.cpp:397]     Test net output #0: accuracy = 0.2
I0224 00:32:03.391911  655 solver.cpp:218] Iteration 0 (-4.6e-43 iter/s, 4s/100 iters), loss = 2.3
I0224 00:32:03.391911  655 solver.cpp:237]     Train net output #0: loss = 2.3 (* 1 = 2.3 loss)
I0224 00:32:03.391911   655 sgd_solver.cpp:105] Iteration 0, lr = 0.01
I0224 00:32:03.391911  655 solver.cpp:218] Iteration 100 (25 iter/s, 4s/100 iters), loss = 1e-05
I0224 00:32:03.391911   655 sgd_solver.cpp:105] Iteration 100, lr = 0.00992565
I0224 00:32:03.391911  655 solver.cpp:218] Iteration 200 (25 iter/s, 4s/100 iters), loss = nan
"""
INTEL = """[1] I0502 16:52:12.812652 13716 solver.cpp:312] Iteration 10, loss = 9.5
[0] I0502 16:52:12.812652 13716 solver.cpp:312] Iteration 10, loss = 3.5
[1] I0502 16:52:12.812652 13716 solver.cpp:312] Iteration 20, loss = 3
"""


def test_the_curves_of_a_log_are_read() -> None:
    curves = plot.read_log(BVLC.splitlines())
    assert curves.loss[0] == [0, 100, 200]
    assert curves.loss[1][:2] == [2.3, 1e-05]
    assert math.isnan(curves.loss[1][2])
    assert curves.rate == ([0, 100], [0.01, 0.00992565])
    assert curves.tests == {
        (0, "accuracy"): ([0], [0.1048]),
        (0, "loss"): ([0], [2.3541]),
        (1, "accuracy"): ([0], [0.2]),
    }


@pytest.mark.parametrize("line", ["[{}] ", "[{}]<stderr>:", "[{}]<stdout>: "])
def test_of_the_mixed_lines_of_processes_those_of_the_first_are_read(line: str) -> None:
    log = INTEL.replace("[1] ", line.format(1)).replace("[0] ", line.format(0))
    assert plot.read_log(log.splitlines()).loss == ([10, 20], [9.5, 3])


def plotted(folder: Path, *names: str) -> Sequence[str]:
    (folder / "bvlc.log").write_text(BVLC)
    (folder / "intel.log").write_text(INTEL)
    (folder / "empty.log").write_text("nothing\n")
    return ["plot", *(str(folder / name) for name in names)]


@pytest.mark.parametrize(("logs", "panels"), [(["bvlc.log"], 3), (["intel.log"], 1)])
def test_each_kind_of_curves_has_a_panel(tmp_path: Path, logs: list[str], panels: int) -> None:
    assert main(plotted(tmp_path, *logs, "out.png")) == 0
    with Image.open(tmp_path / "out.png") as image:
        assert image.size == (1080, 384 * panels)


def test_many_logs_are_drawn_into_one_picture(tmp_path: Path) -> None:
    assert main(plotted(tmp_path, "bvlc.log", "intel.log", "out.svg")) == 0
    assert (tmp_path / "out.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (
            ["empty.log", "out.png"],
            "plot: there are no curves in {}/empty.log: give the log of a training",
        ),
        (["none.log", "out.png"], "plot: cannot read {}/none.log: No such file or directory"),
        (["bvlc.log", "out.txt"], "plot: {}/out.txt: plot writes .png, .svg and .pdf"),
        (["bvlc.log", "x/out.png"], "plot: cannot write {}/x/out.png: No such file or directory"),
    ],
)
def test_a_plot_that_cannot_be_made_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], names: list[str], error: str
) -> None:
    assert main(plotted(tmp_path, *names)) == 1
    assert capfd.readouterr().err == error.format(tmp_path) + "\n"
    assert not list(tmp_path.glob("*out*"))


def test_a_tool_is_reached_from_the_shell(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    done = subprocess.run(
        [Path(sys.executable).with_name("caffe"), "draw", tmp_path / "net.prototxt"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("digraph")
