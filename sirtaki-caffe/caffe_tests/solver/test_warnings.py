"""What trains in Caffe without a word although something is wrong is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

import caffe
from caffe_tests.nets import build, inputs, product
from sirtaki_caffe.commands.main import main
from sirtaki_caffe.solver.report import LossWatch

INF, NAN = float("inf"), float("nan")
NET = """
layer { name: "d" type: "DummyData" top: "x" include { phase: TRAIN }
  dummy_data_param { shape { dim: 2 } data_filler { value: 1e30 } } }
layer { name: "d" type: "DummyData" top: "x" include { phase: TEST }
  dummy_data_param { shape { dim: 2 } } }
layer { name: "twice" type: "Power" bottom: "x" top: "y" }
layer { name: "twice" type: "Reduction" bottom: "y" top: "l" loss_weight: 1
  reduction_param { operation: SUMSQ } }
"""
SOLVER = 'net: "n" base_lr: 1 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "s"\n'


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([1, 2], []),
        ([1, NAN, NAN], ["Iteration 1: the loss is nan"]),
        ([INF, NAN], ["Iteration 0: the loss is inf", "Iteration 1: the loss is nan"]),
        ([-INF, 1, INF], ["Iteration 0: the loss is -inf", "Iteration 2: the loss is inf"]),
    ],
)
def test_a_loss_that_is_no_number_is_said_once(losses: list[float], said: list[str]) -> None:
    lines: list[str] = []
    watch = LossWatch(lambda source, text: lines.append(text))
    for iteration, loss in enumerate(losses):
        watch.see(iteration, loss)
    assert [line.partition(",")[0] for line in lines] == said


def test_a_name_of_several_layers_is_said_where_no_file_is_known() -> None:
    lines: list[str] = []
    text = inputs("x", (2, 3)) + product("a", "x", 3) + product("a", "a", 3, top="b")
    build(text, warn=lambda source, text: lines.append(text))
    (line,) = lines
    assert line.startswith("several layers have the name 'a'; weights go by names")


def test_layers_without_names_are_said() -> None:
    lines: list[str] = []
    text = inputs("x", (2, 3)) + product("", "x", 3, top="b") + product("", "b", 3, top="c")
    build(text, warn=lambda source, text: lines.append(text))
    (line,) = lines
    assert line.startswith("2 layers have no name; weights go by names")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n").write_text(NET)
    (tmp_path / "s").write_text(SOLVER)
    return tmp_path


WARNINGS = [
    "n:7: several layers have the name 'twice'; weights go by names, so files and test nets "
    "cannot tell them apart: give each layer a name of its own (lines 6, 7)",
    "Iteration 0: the loss is inf, and training goes on; look for data or weights that are no "
    "numbers, or take a lower base_lr or clip_gradients",
]


def warned(shown: str) -> list[str]:
    return [line.split("] ", 1)[1] for line in shown.splitlines() if line.startswith("W")]


@pytest.mark.usefixtures("folder")
def test_caffe_train_warns_with_line_and_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--solver=s", "--logtostderr"]) == 0
    assert warned(capsys.readouterr().err) == WARNINGS


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("level", "count"), [("1", 2), ("2", 0)])
def test_a_script_is_warned_as_much_as_it_wants(
    level: str, count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOG_minloglevel", level)
    caffe.SGDSolver("s").step(2)
    assert warned(capsys.readouterr().err) == WARNINGS[:count]
