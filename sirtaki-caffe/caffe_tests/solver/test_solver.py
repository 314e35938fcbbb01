"""The loop of a solver: its iterations, tests, lines and fields."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from google.protobuf import text_format

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import SolverParameter
from sirtaki_caffe.solver.solver import Options, Request, Solver

ITEMS, FEATURES = 8, 3 * 10 * 10
LEAST_SQUARES = """
name: "LeastSquares"
layer {
  name: "data" type: "HDF5Data" top: "data" top: "targets"
  hdf5_data_param { source: "list.txt" batch_size: BATCH }
}
layer {
  name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param {
    num_output: 1
    weight_filler { type: "gaussian" std: 1.0 } bias_filler { type: "gaussian" std: 1.0 }
  }
}
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "targets" top: "loss" }
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Items and targets, and a file of them in the current folder."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1701)
    # In double precision: numbers that single precision holds too.
    items = random.normal(size=(ITEMS, 3, 10, 10)).astype(np.float32).astype(np.float64)
    targets = random.normal(size=(ITEMS, 1)).astype(np.float32).astype(np.float64)
    with h5py.File("data.h5", "w") as file:
        file["data"], file["targets"] = items, targets
    Path("list.txt").write_text("data.h5\n")
    return items.reshape(ITEMS, FEATURES), targets


class Made(list[Solver]):
    """Solvers to be closed at the end of a test, and what they have written down."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def solver(self, batch: int = ITEMS, net: str = LEAST_SQUARES, **options: Any) -> Solver:
        """A solver of the least squares, in double precision; fields in `fields`."""
        Path("net.prototxt").write_text(net.replace("BATCH", str(batch)))
        fields = options.pop("fields", "")
        param = SolverParameter(
            net="net.prototxt",
            base_lr=0.125,
            lr_policy="fixed",
            random_seed=7,
            max_iter=4,
            snapshot_prefix="s",
        )
        text_format.Merge(fields, param)
        log = lambda source, text: self.lines.append(text)  # noqa: E731
        self.append(Solver(param, log, options=Options(dtype=torch.float64, **options)))
        return self[-1]


@pytest.fixture
def made() -> Iterator[Made]:
    found = Made()
    yield found
    for solver in found:
        solver.close()


def weights_of(solver: Solver) -> np.ndarray:
    """The weights and, last, the bias."""
    params = solver.net.learnable
    return np.concatenate([p.data.detach().numpy().ravel() for p in params])


KINDS: dict[str, str] = {
    "SGD": "momentum: 0.5",
    "Nesterov": "momentum: 0.5",
    "AdaGrad": "delta: 0.125",
    "RMSProp": "delta: 0.125 rms_decay: 0.75",
    "AdaDelta": "delta: 0.125 momentum: 0.75",
    "Adam": "delta: 0.125 momentum: 0.875 momentum2: 0.9375",
}


def expected(kind: str, items: np.ndarray, targets: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Four iterations of least squares by normal equations, with decay 0.5 of the weights."""
    x = np.concatenate([items, np.ones((ITEMS, 1))], axis=1)
    square, cross = x.T @ x / ITEMS, x.T @ targets[:, 0] / ITEMS
    rate = np.full(FEATURES + 1, 0.125)
    rate[-1] = 0.25
    decay = np.full(FEATURES + 1, 0.5)
    decay[-1] = 0
    h = np.zeros((2, FEATURES + 1))
    for t in range(1, 5):
        g = square @ w - cross + decay * w
        if kind in ("SGD", "Nesterov"):
            before, h[0] = h[0].copy(), 0.5 * h[0] + rate * g
            u = h[0] if kind == "SGD" else 1.5 * h[0] - 0.5 * before
        elif kind in ("AdaGrad", "RMSProp"):
            h[0] = h[0] + g**2 if kind == "AdaGrad" else 0.75 * h[0] + 0.25 * g**2
            u = rate * g / (np.sqrt(h[0]) + 0.125)
        elif kind == "AdaDelta":
            h[0] = 0.75 * h[0] + 0.25 * g**2
            s = g * np.sqrt((h[1] + 0.125) / (h[0] + 0.125))
            h[1] = 0.75 * h[1] + 0.25 * s**2
            u = rate * s
        else:
            h[0] = 0.875 * h[0] + 0.125 * g
            h[1] = 0.9375 * h[1] + 0.0625 * g**2
            u = rate * np.sqrt(1 - 0.9375**t) / (1 - 0.875**t) * h[0] / (np.sqrt(h[1]) + 0.125)
        w = w - u
    return w


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [1, 2], ids=["at once", "by iter_size"])
def test_least_squares_are_solved_as_the_formulas_say(
    kind: str, parts: int, data: tuple[np.ndarray, np.ndarray], made: Made
) -> None:
    fields = f'type: "{kind}" weight_decay: 0.5 iter_size: {parts} {KINDS[kind]}'
    solver = made.solver(ITEMS // parts, fields=fields)
    start = weights_of(solver)
    solver.step(4)
    np.testing.assert_allclose(weights_of(solver), expected(kind, *data, start), rtol=1e-10)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(
    kind: str, form: str, made: Made
) -> None:
    fields = (
        f'type: "{kind}" {KINDS[kind]} weight_decay: 0.5 snapshot_format: {form} average_loss: 3 '
        'lr_policy: "multistep" gamma: 0.5 stepvalue: [1, 3] max_iter: 6 display: 1'
    )
    ending = ".h5" if form == "HDF5" else ""
    # Three items at a time: where the data go on matters.
    through = made.solver(3, fields=fields)
    through.step(2)
    through.snapshot()
    through.step(4)
    lines = [line for line in made.lines if re.search("lr = |Iteration .* loss", line)]
    made.lines.clear()
    again = made.solver(3, fields=fields + " random_seed: 8")
    again.solve(resume=f"s_iter_2.solverstate{ending}")
    # Files have single precision, as Caffe's.
    np.testing.assert_allclose(weights_of(again), weights_of(through), rtol=1e-5, atol=1e-6)
    found = [line for line in made.lines if re.search("lr = |Iteration .* loss", line)]
    shown = [re.sub(r"\(.*iters\), ", "", line) for line in found[:8]]
    assert shown == [re.sub(r"\(.*iters\), ", "", line) for line in lines[4:]]


@pytest.mark.usefixtures("data")
def test_without_the_file_of_positions_data_begin_with_the_first_record(made: Made) -> None:
    first = made.solver(3)
    first.step(1)
    first.snapshot()
    Path("s_iter_1.solverstate.position.json").unlink()
    made.lines.clear()
    second = made.solver(3)
    second.restore("s_iter_1.solverstate")
    second.step(1)
    assert made.lines[-1].startswith("No position of the data (there is none)")
    second.net.forward()
    first.net.forward()
    torch.testing.assert_close(second.net.blobs["data"].data, first.net.blobs["data"].data)


@pytest.mark.usefixtures("data")
def test_gradients_are_clipped_to_the_norm_asked_for(made: Made) -> None:
    solver = made.solver(fields="clip_gradients: 0.5")
    before = weights_of(solver)
    for param in solver.net.learnable:
        param.lr_mult = 1.0
    solver.step(1)
    assert np.linalg.norm(weights_of(solver) - before) == pytest.approx(0.125 * 0.5)
    assert any(line.startswith("Gradient clipping: scaling down") for line in made.lines)


@pytest.mark.usefixtures("data")
def test_the_loss_shown_is_the_mean_over_the_last_iterations(made: Made) -> None:
    solver = made.solver(2, fields="display: 1 average_loss: 2 base_lr: 0")
    solver.step(4)
    pattern = r"Iteration \d+ \(\S+ iter/s, \S+s/1 iters\), loss = (\S+)"
    means = [float(m.group(1)) for line in made.lines if (m := re.fullmatch(pattern, line))]
    own = [
        float(m.group(1))
        for line in made.lines
        if (m := re.match(r"    Train net output #0: loss = (\S+) \(\* 1 = \S+ loss\)", line))
    ]
    pairs = [own[0], *((a + b) / 2 for a, b in itertools.pairwise(own))]
    assert means == pytest.approx(pairs, rel=1e-5)


TESTED = LEAST_SQUARES + 'layer { name: "out" type: "Power" bottom: "ip" top: "out" }\n'


@pytest.mark.usefixtures("data")
def test_tests_come_when_the_fields_say(made: Made) -> None:
    def iterations(fields: str) -> list[int]:
        made.lines.clear()
        made.solver(fields=f"test_iter: 1 max_iter: 6 {fields}").solve()
        pattern = r"Iteration (\d+), Testing net \(#0\)"
        return [int(m.group(1)) for line in made.lines if (m := re.fullmatch(pattern, line))]

    assert iterations("test_interval: 2") == [0, 2, 4, 6]
    assert iterations("test_interval: 4") == [0, 4]
    assert iterations("test_interval: 3 test_initialization: false") == [3, 6]
    assert iterations("test_interval: 3 test_offset: 1") == [1, 4]


@pytest.mark.usefixtures("data")
def test_a_test_writes_the_means_over_its_batches(made: Made) -> None:
    solver = made.solver(4, fields="test_iter: 2 test_interval: 9 test_compute_loss: true")
    made.lines.clear()
    with torch.no_grad():
        losses = [float(solver.net.forward()) for _ in range(2)]
    solver.test_all()
    mean = f"{sum(losses) / 2:g}"
    assert made.lines == [
        "Iteration 0, Testing net (#0)",
        f"Test loss: {mean}",
        f"    Test net output #0: loss = {mean} (* 1 = {mean} loss)",
    ]


@pytest.mark.usefixtures("data")
def test_every_number_of_an_output_has_a_line_in_the_order_of_names(made: Made) -> None:
    solver = made.solver(2, TESTED, fields="display: 5")
    solver.step(1)
    shown = [line for line in made.lines if line.startswith("    Train net output")]
    assert [line.split(" = ")[0][4:] for line in shown] == [
        "Train net output #0: loss",
        "Train net output #1: out",
        "Train net output #2: out",
    ]


@pytest.mark.usefixtures("data")
def test_snapshots_come_when_the_fields_say(made: Made) -> None:
    def written(fields: str) -> list[str]:
        for path in Path().glob("s_iter_*"):
            path.unlink()
        made.solver(fields=f"max_iter: 5 {fields}").solve()
        return sorted(path.name for path in Path().glob("s_iter_*.caffemodel"))

    assert written("snapshot: 2") == [f"s_iter_{i}.caffemodel" for i in (2, 4, 5)]
    assert written("snapshot: 5") == ["s_iter_5.caffemodel"]
    assert written("") == ["s_iter_5.caffemodel"]
    assert written("snapshot: 2 snapshot_after_train: false") == [
        f"s_iter_{i}.caffemodel" for i in (2, 4)
    ]


@pytest.mark.usefixtures("data")
def test_a_user_stops_training_with_a_snapshot(made: Made) -> None:
    asked = iter([Request(), Request(snapshot=True), Request(), Request(stop=True)])
    solver = made.solver(fields="max_iter: 100", requests=lambda: next(asked))
    solver.solve()
    assert solver.iter == 4
    assert made.lines[-1] == "Optimization stopped early."
    assert sorted(p.name for p in Path().glob("*.solverstate")) == [
        "s_iter_2.solverstate",
        "s_iter_4.solverstate",
    ]


@pytest.mark.usefixtures("data")
def test_a_user_stops_a_test(made: Made) -> None:
    asked = iter([Request(), Request(stop=True)])
    fields = "test_iter: 3 test_interval: 1 snapshot_after_train: false"
    solver = made.solver(fields=fields, requests=lambda: next(asked))
    solver.solve()
    assert solver.iter == 0
    assert made.lines[-2:] == ["Test interrupted.", "Optimization stopped early."]


@pytest.mark.usefixtures("data")
def test_debug_info_tells_what_each_layer_makes(made: Made) -> None:
    solver = made.solver(fields="debug_info: true")
    before = solver.net.learnable[0].data.detach().abs().mean()
    made.lines.clear()
    solver.step(1)
    heads = [line.split(": ")[0] for line in made.lines if line.startswith("    [")]
    assert heads == [
        "    [Forward] Layer data, top blob data data",
        "    [Forward] Layer data, top blob targets data",
        "    [Forward] Layer ip, top blob ip data",
        "    [Forward] Layer ip, param blob 0 data",
        "    [Forward] Layer ip, param blob 1 data",
        "    [Forward] Layer loss, top blob loss data",
        "    [Backward] Layer loss, bottom blob ip diff",
        "    [Backward] Layer ip, param blob 0 diff",
        "    [Backward] Layer ip, param blob 1 diff",
        "    [Backward] All net params (data, diff)",
        "    [Update] Layer ip, param 0 data",
        "    [Update] Layer ip, param 1 data",
    ]
    assert made.lines[3] == f"    [Forward] Layer ip, param blob 0 data: {float(before):g}"


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('train_net: "net.prototxt"', "net and train_net"),
        ("test_iter: 1", "test_interval must be above 0"),
        ('test_net: "net.prototxt" test_interval: 1', "test_iter must be specified for each"),
        ("test_iter: 1 test_interval: 1 test_state {} test_state {}", "test_state must be"),
        ("average_loss: 0", "average_loss: 0 must be at least 1"),
        ("iter_size: 0", "iter_size: 0 must be at least 1"),
        ('type: "AdaGrad" momentum: 0.5', "momentum: cannot be used with AdaGrad"),
        ('net: "missing.prototxt"', "cannot read missing.prototxt"),
        ('snapshot: 1 snapshot_prefix: "no/such/folder"', "Cannot write to snapshot prefix"),
    ],
)
def test_fields_that_do_not_fit_are_named(fields: str, said: str, made: Made) -> None:
    with pytest.raises(CaffeError, match=said):
        made.solver(fields=fields)


@pytest.mark.usefixtures("data")
def test_a_solver_without_a_net_says_which_fields_name_one() -> None:
    with pytest.raises(CaffeError, match="one of: net, net_param, train_net, train_net_param"):
        Solver(SolverParameter(), lambda source, text: None)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ('type: "Adam" momentum: 0.5', "Incorrect length of history blobs: 2"),
        (LEAST_SQUARES.replace("num_output: 1", "num_output: 2"), "blob 0 has shape"),
    ],
)
def test_a_state_of_another_solver_is_refused(other: str, said: str, made: Made) -> None:
    made.solver().snapshot()
    fields, net = (other, LEAST_SQUARES) if other.startswith("type") else ("", other)
    if fields == "":
        net = net.replace('bottom: "targets"', 'bottom: "ip"')
    solver = made.solver(net=net, fields=fields)
    with pytest.raises(CaffeError, match=said):
        solver.restore("s_iter_0.solverstate")


@pytest.mark.usefixtures("data")
def test_a_broken_file_of_positions_is_named(made: Made) -> None:
    solver = made.solver()
    solver.snapshot()
    Path("s_iter_0.solverstate.position.json").write_text('{"processes": 3')
    with pytest.raises(CaffeError, match=r"s_iter_0.solverstate.position.json: is not a file"):
        solver.restore("s_iter_0.solverstate")


@pytest.mark.usefixtures("data")
def test_a_solver_ends_its_nets_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    solver = made.solver()
    monkeypatch.setattr(solver.net, "close", lambda: ended.append("train"))
    solver.close()
    solver.close()
    assert ended == ["train"]
