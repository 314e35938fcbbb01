"""The program `caffe`: its actions, its log, and how it ends."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
import torch

from caffe_tests import places
from sirtaki_caffe.commands.main import main

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with LeNet and its data, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOG_logtostderr", "1")
    places.make_data(tmp_path)
    places.write_net(tmp_path, "lenet", places.LENET, 6)
    return tmp_path


def run(*words: str) -> int:
    return main([*words])


# ---- actions ----


@pytest.mark.usefixtures("place")
def test_train_writes_the_lines_that_tools_look_for(capsys: Shown) -> None:
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    lines = places.log_text(capsys.readouterr().err)
    expected = [
        r"Use CPU\.",
        r"Initializing solver from parameters: ",
        r"Creating training net from net file: lenet\.prototxt",
        r"Initializing net from parameters: ",
        r"Creating Layer conv1",
        r"conv1 <- data",
        r"conv1 -> conv1",
        r"relu1 -> ip1 \(in-place\)",
        r"Network initialization done\.",
        r"Creating test net \(#0\) specified by net file: lenet\.prototxt",
        r"Solver scaffolding done\.",
        r"Starting Optimization",
        r"Solving LeNet",
        r"Learning Rate Policy: inv",
        r"Iteration 0, Testing net \(#0\)",
        r"    Test net output #0: accuracy = \S+",
        r"    Test net output #1: loss = (\S+) \(\* 1 = \1 loss\)",
        r"Iteration 0 \(\S+ iter/s, \S+s/1 iters\), loss = \S+",
        r"    Train net output #0: loss = (\S+) \(\* 1 = \1 loss\)",
        r"Iteration 0, lr = 0\.05",
        r"Iteration 9, lr = \S+",
        r"Snapshotting to binary proto file lenet_iter_10\.caffemodel",
        r"Snapshotting solver state to binary proto file lenet_iter_10\.solverstate",
        r"Iteration 10, loss = \S+",
        r"Iteration 10, Testing net \(#0\)",
        r"Optimization Done\.",
        r"Optimization Done\.",
    ]
    rest = iter(lines)
    for pattern in expected:
        assert any(re.fullmatch(pattern, line) for line in rest), f"{pattern} does not follow"


@pytest.mark.usefixtures("place")
def test_bvlcs_log_parser_finds_its_numbers(capsys: Shown) -> None:
    """With the regular expressions of tools/extra/parse_log.py and the columns of parse_log.sh."""
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    lines = capsys.readouterr().err.splitlines()
    train, test, rates, solving = [], [], [], []
    iteration = -1
    for line in lines:
        if found := re.search(r"Iteration (\d+)", line):
            iteration = int(found.group(1))
        if " Solving " in line:
            solving.append(line.split()[:2])
        if found := re.search(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)", line):
            train.append((iteration, found.group(2)))
            assert line.split()[10] == found.group(3)
        if found := re.search(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)", line):
            test.append((iteration, found.group(2)))
        if found := re.search(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)", line):
            rates.append(float(found.group(1)))
            assert line.split()[8] == found.group(1)
    assert train == [(i, "loss") for i in range(10)]
    assert test == [(i, name) for i in (0, 5, 10) for name in ("accuracy", "loss")]
    assert rates == pytest.approx([0.05 * (1 + 0.01 * i) ** -0.75 for i in range(10)], rel=1e-5)
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6}", " ".join(solving[0]))


@pytest.mark.usefixtures("place")
def test_test_scores_the_weights(capsys: Shown) -> None:
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    trained = places.log_text(capsys.readouterr().err)
    words = ("test", "--model=lenet.prototxt", "--weights=lenet_iter_10.caffemodel")
    assert run(*words, "--iterations", "6") == 0
    lines = places.log_text(capsys.readouterr().err)
    start = lines.index("Running for 6 iterations.")
    assert [line.split(" = ")[0] for line in lines[start + 1 : start + 13]] == [
        f"Batch {i}, {name}" for i in range(6) for name in ("accuracy", "loss")
    ]
    last = [line.split(": ", 1)[1] for line in trained if "Test net output" in line][-2:]
    assert lines[-2:] == last
    assert lines[-3] == f"Loss: {last[1].split()[2]}"


@pytest.mark.usefixtures("place")
def test_time_measures_every_layer(capsys: Shown) -> None:
    assert run("time", "--model=lenet.prototxt", "--iterations=2") == 0
    lines = places.log_text(capsys.readouterr().err)
    start = lines.index("*** Benchmark begins ***")
    heads = [re.sub(r"\S+ ms\.", "x ms.", line) for line in lines[start:]]
    layers = ["data", "conv1", "pool1", "ip1", "relu1", "ip2", "loss"]
    each = [f"{name:>10}\t{way}: x ms." for name in layers for way in ("forward", "backward")]
    assert heads == [
        "*** Benchmark begins ***",
        "Testing for 2 iterations.",
        "Iteration: 1 forward-backward time: x ms.",
        "Iteration: 2 forward-backward time: x ms.",
        "Average time per layer: ",
        *each,
        "Average Forward pass: x ms.",
        "Average Backward pass: x ms.",
        "Average Forward-Backward: x ms.",
        "Total Time: x ms.",
        "*** Benchmark ends ***",
    ]


@pytest.mark.usefixtures("place")
def test_time_can_leave_the_backward_pass_out(capsys: Shown) -> None:
    words = ("time", "--model=lenet.prototxt", "--iterations=1", "--forward_only", "--phase=TEST")
    assert run(*words) == 0
    shown = capsys.readouterr().err
    assert "  accuracy\tforward: " in shown
    assert "ackward:" not in shown


def test_a_query_of_devices_succeeds_without_any(
    capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOG_logtostderr", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run("device_query", "--gpu=all") == 0
    assert "Querying GPUs all" in capsys.readouterr().err


@pytest.mark.usefixtures("place")
def test_weights_are_finetuned_by_the_names_of_layers(capsys: Shown) -> None:
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    text = Path("lenet.prototxt").read_text().replace('"ip2"', '"other"')
    Path("lenet.prototxt").write_text(text)
    capsys.readouterr()
    words = ("train", "--solver=lenet_solver.prototxt", "--weights=lenet_iter_10.caffemodel")
    assert run(*words) == 0
    lines = places.log_text(capsys.readouterr().err)
    assert "Finetuning from lenet_iter_10.caffemodel" in lines
    assert lines.count("Ignoring source layer ip2") == 2  # in the train net, in the test net


@pytest.mark.usefixtures("place")
def test_weights_may_be_named_by_the_solver(capsys: Shown) -> None:
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    with Path("lenet_solver.prototxt").open("a") as file:
        file.write('weights: "lenet_iter_10.caffemodel"\n')
    capsys.readouterr()
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    assert "Finetuning from lenet_iter_10.caffemodel" in capsys.readouterr().err


@pytest.mark.usefixtures("place")
def test_training_goes_on_from_a_snapshot(capsys: Shown) -> None:
    places.write_net(Path(), "lenet", places.LENET, 6, "snapshot: 5\ntest_interval: 99")
    assert run("train", "--solver=lenet_solver.prototxt") == 0
    through = places.weights(Path("lenet_iter_10.caffemodel"))
    Path("lenet_iter_10.caffemodel").unlink()
    capsys.readouterr()
    words = ("train", "--solver=lenet_solver.prototxt", "--snapshot=lenet_iter_5.solverstate")
    assert run(*words) == 0
    lines = places.log_text(capsys.readouterr().err)
    assert "Resuming from lenet_iter_5.solverstate" in lines
    assert "Restoring previous solver status from lenet_iter_5.solverstate" in lines
    assert not any(line.startswith("Iteration 4 ") for line in lines)
    again = places.weights(Path("lenet_iter_10.caffemodel"))
    places.assert_same_weights(again, through, 1e-7)


@pytest.mark.usefixtures("place")
def test_phases_of_a_solver_hand_their_weights_on(capsys: Shown) -> None:
    solver = Path("lenet_solver.prototxt").read_text().replace("max_iter: 10", "max_iter: 2")
    pair = "params_pair {{ solver_params {{ {} }} {} }}\n"
    Path("phases.prototxt").write_text(
        pair.format(solver, "batch_size: 3")
        + pair.format(solver + "base_lr: 0", "").replace("base_lr: 0.05\n", "")
    )
    assert run("train", "--solver=phases.prototxt") == 0
    first = places.weights(Path("lenet_phase_0_iter_2.caffemodel"))
    second = places.weights(Path("lenet_phase_1_iter_2.caffemodel"))
    places.assert_same_weights(second, first, 0.0)
    shapes = re.findall(r"Top shape: (\d+) 1 12 12", capsys.readouterr().err)
    assert shapes == ["3", "4", "6", "4"]


@pytest.mark.usefixtures("place")
def test_stages_and_level_choose_layers_of_the_train_net(capsys: Shown) -> None:
    extra = """layer { name: "extra" type: "Silence" bottom: "ip1"
      include { phase: TRAIN stage: "odd" min_level: 2 } }"""
    with Path("lenet.prototxt").open("a") as file:
        file.write(extra)
    words = ("train", "--solver=lenet_solver.prototxt")
    assert run(*words, "--stage=odd", "--level=2") == 0
    assert "Creating Layer extra" in capsys.readouterr().err
    assert run(*words, "--stage=odd") == 0
    assert "Creating Layer extra" not in capsys.readouterr().err


def test_a_log_file_is_made_by_default(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOG_logtostderr")
    assert run("device_query", f"--log_dir={place}") == 0
    assert "] Querying GPUs all" in (place / "caffe.INFO").read_text()


# ---- how it ends ----


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 0, "usage: caffe <action> <flags>"),
        (["train", "again"], 0, "usage: caffe <action> <flags>"),
        (["--help"], 1, "flags of the actions:"),
        (["--version"], 0, "caffe version 1.0.0"),
        (["train", "--nosuch=1"], 1, "ERROR: unknown command line flag 'nosuch'"),
        (["fly"], 134, "Unknown action: fly"),
        (["collect"], 1, "DETERMINISTIC"),
        (["train"], 134, "Need a solver definition to train"),
        (["test"], 134, "Need a model definition to score"),
        (["test", "--model=x"], 134, "Need model weights to score"),
        (["time"], 134, "Need a model definition to time"),
        (["time", "--model=lenet.prototxt", "--phase=VAL"], 134, "--phase=VAL"),
        (["train", "--solver=s", "--snapshot=a", "--weights=b"], 134, "not both"),
        (["train", "--solver=s", "--n_group=2"], 1, "--n_group=2"),
        (["train", "--solver=missing"], 134, "cannot read missing"),
        (["train", "--solver=lenet_solver.prototxt", "--sigint_effect=die"], 134, "sigint_effect"),
        (["train", "--solver=lenet_solver.prototxt", "--weights=none"], 134, "cannot read none"),
        (["train", "--solver=lenet_solver.prototxt", "--snapshot=none"], 134, "cannot read none"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_command_line_has_its_exit_code(
    words: list[str], code: int, said: str, capsys: Shown
) -> None:
    assert run(*words) == code
    assert said in "".join(capsys.readouterr())


def edited(old: str, new: str, file: str = "lenet.prototxt") -> Callable[[Path], None]:
    """Change a file."""

    def change(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def without_records(folder: Path) -> None:
    for file in (folder / "train_lmdb").iterdir():
        file.unlink()
    lmdb.open(str(folder / "train_lmdb")).close()


def cut_off(folder: Path) -> None:
    path = folder / "start.caffemodel"
    main(["train", "--solver=lenet_solver.prototxt"])
    path.write_bytes((folder / "lenet_iter_10.caffemodel").read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edited("num_output: 10", "num_outputs: 10"), r"lenet.prototxt:\d+:\d+: .*num_outputs"),
        (edited("num_output: 10", 'num_output: "x"'), r"lenet.prototxt:\d+:\d+: "),
        (
            edited("momentum: 0.9", "momentun: 0.9", "lenet_solver.prototxt"),
            r"solver.prototxt:\d+:",
        ),
        (
            edited('"inv"', '"vin"', "lenet_solver.prototxt"),
            r"lenet_solver.prototxt:4:1: lr_policy: unknown .*; did you mean 'inv'",
        ),
        (edited('bottom: "pool1"', 'bottom: "pool9"'), "pool9"),
        (edited('bottom: "data" top: "conv1"', 'bottom: "ip2" top: "conv1"'), "layer 'conv1'"),
        (edited('type: "ReLU"', 'type: "ReLV"'), "layer 'relu1'.*ReLV"),
        (edited("kernel_size: 5", "kernel_size: 50"), "layer 'conv1'"),
        (edited("scale: 0.00390625", "crop_size: 13"), "layer 'data'.*13"),
        (edited('"train_lmdb"', '"missing"'), "layer 'data'.*missing"),
        (without_records, "layer 'data'.*train_lmdb"),
        (
            edited(
                'snapshot_prefix: "lenet"',
                'snapshot: 5 snapshot_prefix: "no/where"',
                "lenet_solver.prototxt",
            ),
            "Cannot write to snapshot prefix",
        ),
        (cut_off, "start.caffemodel"),
    ],
    ids=[
        "unknown field",
        "wrong type",
        "unknown field of the solver",
        "wrong value of the solver",
        "missing blob",
        "cycle",
        "unknown layer type",
        "shape",
        "crop larger than the image",
        "no database",
        "empty database",
        "snapshots cannot be written",
        "truncated weights",
    ],
)
def test_bad_input_is_named_and_aborts(
    change: Callable[[Path], None], said: str, place: Path, capsys: Shown
) -> None:
    change(place)
    capsys.readouterr()
    before = set(place.iterdir())
    weights = ["--weights=start.caffemodel"] if (place / "start.caffemodel").exists() else []
    assert run("train", "--solver=lenet_solver.prototxt", *weights) == 134
    last = [line for line in capsys.readouterr().err.splitlines() if line.startswith("F")]
    assert len(last) == 1
    assert re.search(said, last[0])
    assert set(place.iterdir()) == before


@pytest.mark.parametrize("file", ["test_lmdb", "train_lmdb"])
def test_nothing_goes_on_after_an_error(file: str, place: Path) -> None:
    (place / file).rename(place / "elsewhere")
    before = set(threading.enumerate())
    assert run("train", "--solver=lenet_solver.prototxt") == 134
    assert set(threading.enumerate()) <= before


def add_python_layer(module: str) -> None:
    with Path("lenet.prototxt").open("a") as file:
        file.write(
            'layer { name: "own" type: "Python" bottom: "ip1" top: "own" '
            f'python_param {{ module: "{module}" layer: "Broken" }} }}'
        )


@pytest.mark.usefixtures("place")
def test_a_python_layer_that_is_not_there_ends_with_one_line(capsys: Shown) -> None:
    add_python_layer("not_there")
    assert run("train", "--solver=lenet_solver.prototxt") == 1
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("F"))
    assert "layer 'own' (Python): class 'Broken' of module 'not_there' cannot be made" in line


@pytest.mark.usefixtures("place")
def test_a_module_of_a_python_layer_that_is_no_python_shows_its_line(capsys: Shown) -> None:
    Path("no_python.py").write_text("\n\nclass Broken(\n")
    add_python_layer("no_python")
    assert run("train", "--solver=lenet_solver.prototxt") == 1
    assert 'no_python.py", line 3\n    class Broken(\n' in capsys.readouterr().err


@pytest.mark.usefixtures("place")
def test_an_exception_of_a_python_layer_shows_where_it_was_raised(capsys: Shown) -> None:
    Path("broken.py").write_text(
        "import caffe\n\n\nclass Broken(caffe.Layer):\n"
        "    def setup(self, bottom, top):\n        pass\n\n"
        "    def reshape(self, bottom, top):\n        top[0].reshape(1)\n\n"
        "    def forward(self, bottom, top):\n        raise RuntimeError('mine')\n"
    )
    add_python_layer("broken")
    assert run("train", "--solver=lenet_solver.prototxt") == 1
    shown = capsys.readouterr().err
    assert 'broken.py", line 12, in forward\n    raise RuntimeError(' in shown
    assert "RuntimeError: mine" in shown
    assert shown.count("  File ") == 1


@pytest.mark.parametrize(
    "tool",
    [
        *("convert", "draw", "plot", "convert_imageset", "compute_image_mean", "extract_features"),
        *("upgrade_net_proto_text", "upgrade_net_proto_binary", "upgrade_solver_proto_text"),
    ],
)
def test_a_tool_has_flags_of_its_own(
    tool: str, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["caffe"])
    with pytest.raises(SystemExit) as left:
        run(tool, "--help")
    assert left.value.code == 0
    assert re.match(rf"usage: (sirtaki )?(caffe )?{tool} ", capsys.readouterr().out)


def test_caffe_is_a_subcommand_of_sirtaki_too() -> None:
    done = subprocess.run(
        [places.CAFFE[0], "-m", "sirtaki.launch.cli", "caffe", "fly", "--logtostderr"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 134
    assert "Unknown action: fly" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.usefixtures("place")
def test_a_gpu_that_is_not_there_is_said_to_be_missing(capsys: Shown) -> None:
    assert run("train", "--solver=lenet_solver.prototxt", "--gpu=0") == 0
    lines = places.log_text(capsys.readouterr().err)
    assert lines[:2] == ["--gpu=0: there is no GPU that PyTorch can use here", "Use CPU."]
