"""Training by several processes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from caffe_tests import places
from sirtaki_caffe.commands.main import main

NETS = {
    "lenet": places.LENET,
    "alexnet": places.ALEXNET,
    "autoencoder": places.AUTOENCODER,
    "shared": places.SHARED,
    "ignoring": places.IGNORING,
    "summed": places.SUMMED,
}
# Fields of their solvers.
MORE = {
    "alexnet": "clip_gradients: 0.5",
    "autoencoder": "iter_size: 2",
    # A test batch has the mean over those of its own labels that count, and the root of its mean.
    "ignoring": "test_interval: 99\ntest_initialization: false",
    "summed": "test_interval: 99\ntest_initialization: false",
}
BATCH = 12
FOLDER = Path(__file__).resolve().parents[2]
# Several nets one after the other, so that Python and PyTorch are started once.
TRAIN_ALL = (
    "import sys; from sirtaki_caffe.commands.main import main; "
    "sys.exit(sum(main(['train', f'--solver={net}_solver.prototxt', '--logtostderr']) "
    "for net in sys.argv[1:]))"
)


def train_all(folder: Path, processes: int) -> subprocess.CompletedProcess[str]:
    for name, text in NETS.items():
        places.write_net(folder, name, text, BATCH // processes, MORE.get(name, ""))
    launcher = () if processes == 1 else (*places.HOROVODRUN, "-np", str(processes))
    return subprocess.run(
        [*launcher, places.CAFFE[0], "-c", TRAIN_ALL, *NETS],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=places.LIMIT,
        env=places.environment(),
        check=True,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """What one process does with the whole batch: its folder, and its log."""
    folder = tmp_path_factory.mktemp("alone")
    places.make_data(folder)
    log = places.log_text(train_all(folder, 1).stderr)
    assert any(line.startswith("Gradient clipping") for line in log)
    return folder, log


def shown(log: list[str]) -> list[tuple[str, float]]:
    """What stands before the numbers of losses, outputs and rates, and the numbers."""
    pattern = r"((?:Iteration \d+).*(?:loss|lr) = |    (?:Train|Test) net output #\d+: \S+ = )(\S+)"
    found = (re.match(pattern, line) for line in log)
    pairs = ((match.group(1), match.group(2)) for match in found if match)
    return [(re.sub(r" \(.* iters\)", "", words), float(value)) for words, value in pairs]


@pytest.mark.parametrize(
    "processes", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (3, 4))]
)
def test_processes_do_together_what_one_does_with_the_whole_batch(
    processes: int, alone: tuple[Path, list[str]], tmp_path: Path
) -> None:
    reference, log = alone
    places.make_data(tmp_path)
    done = train_all(tmp_path, processes)
    lines = done.stderr.splitlines()
    assert {line[:3] for line in lines if line.startswith("[")} == {"[0]"}  # one writes the log
    for net in NETS:
        model = f"{net}_iter_10.caffemodel"
        places.assert_same_weights(
            places.weights(tmp_path / model), places.weights(reference / model), 1e-5
        )
    # Four processes share six test batches unevenly, and so read others.
    kinds = ("Iteration", "    Train", "    Test") if processes < 4 else ("Iteration", "    Train")
    expected = [pair for pair in shown(log) if pair[0].startswith(kinds)]
    found = [pair for pair in shown(places.log_text(done.stderr)) if pair[0].startswith(kinds)]
    assert [words for words, _ in found] == [words for words, _ in expected]
    assert [v for _, v in found] == pytest.approx([v for _, v in expected], rel=2e-5, abs=1e-6)


def rank_script(folder: Path, *names: str) -> list[str]:
    """Run functions of `rank_checks` in two processes; return what they print."""
    code = "; ".join(
        ["from caffe_tests.jobs import rank_checks", *(f"rank_checks.{n}()" for n in names)]
    )
    done = subprocess.run(
        [*places.HOROVODRUN, "-np", "2", places.CAFFE[0], "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=places.LIMIT,
        env=places.environment(PYTHONPATH=f"{FOLDER}:{FOLDER.parent}"),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What has held in both processes."""
    folder = tmp_path_factory.mktemp("checked")
    places.make_data(folder)
    places.write_net(folder, "normed", places.BATCH_NORM, 6)
    return rank_script(folder, "update", "statistics", "orders")


@pytest.mark.parametrize("rank", [0, 1])
def test_an_update_of_a_script_is_by_the_gradients_of_all_processes(
    checked: list[str], rank: int
) -> None:
    assert f"[{rank}]<stdout>:update" in checked


@pytest.mark.parametrize("rank", [0, 1])
def test_statistics_are_averaged_for_tests_and_snapshots_and_kept_apart_otherwise(
    checked: list[str], rank: int
) -> None:
    assert f"[{rank}]<stdout>:statistics" in checked


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_are_averaged_whoever_has_put_weights_in_order(
    checked: list[str], rank: int
) -> None:
    assert f"[{rank}]<stdout>:orders" in checked


def test_a_process_that_loses_its_data_ends_all_and_says_so(tmp_path: Path) -> None:
    places.make_data(tmp_path)
    # Each process has a database of its own; that of the second is missing.
    (tmp_path / "train_lmdb").rename(tmp_path / "train_0_lmdb")
    text = places.LENET.replace("train_lmdb", "train_%#_lmdb")
    places.write_net(tmp_path, "lenet", text, 6)
    done = places.caffe(tmp_path, "train", "--solver=lenet_solver.prototxt", processes=2)
    assert done.returncode != 0
    fatal = re.findall(r"^\[(\d)\]<stderr>:F\S+ .*\] (.*)$", done.stderr, re.MULTILINE)
    own = [text for rank, text in fatal if rank == "1"]
    assert len(own) == 1
    assert re.match(r"rank 1 on \S+: layer 'data' \(Data\): .*train_1_lmdb", own[0])


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "name", "snapshots"), [(1, "SIGINT", 1), (0, "SIGHUP", 2)])
def test_a_signal_to_one_process_acts_in_all(
    rank: int, name: str, snapshots: int, tmp_path: Path
) -> None:
    places.make_data(tmp_path)
    more = "max_iter: 1000000\ndisplay: 0\ntest_interval: 1000000\ntest_initialization: false"
    places.write_net(tmp_path, "lenet", places.LENET, 6, more)
    (tmp_path / "signalled").write_text(f"{rank} {name}")
    lines = rank_script(tmp_path, "signalled")
    assert lines == [f"[{r}]<stdout>:ended with 0" for r in range(2)]
    assert len(list(tmp_path.glob("*.solverstate"))) == snapshots


@pytest.mark.slow
def test_processes_resume_as_if_they_had_not_been_interrupted(tmp_path: Path) -> None:
    places.make_data(tmp_path)
    text = places.LENET.replace('source: "train_lmdb"', 'source: "train_lmdb" shuffle: true')
    places.write_net(tmp_path, "lenet", text, 7, "snapshot: 5\ntest_interval: 99")
    words = ("train", "--solver=lenet_solver.prototxt")
    done = places.caffe(tmp_path, *words, "--all_ranks_log", processes=2)
    solving = [line for line in done.stderr.splitlines() if "Solving LeNet" in line]
    marks = [re.sub(r"^\[\d\]<stderr>:", "", line)[:5] for line in solving]
    assert sorted(marks) == ["[0] I", "[1] I"]  # as the flag asks
    through = places.weights(tmp_path / "lenet_iter_10.caffemodel")
    (tmp_path / "lenet_iter_10.caffemodel").unlink()
    state = "--snapshot=lenet_iter_5.solverstate"
    done = places.caffe(tmp_path, *words, state, processes=2)
    assert "Iteration 5 " in done.stderr
    assert "Iteration 4 " not in done.stderr
    places.assert_same_weights(places.weights(tmp_path / "lenet_iter_10.caffemodel"), through, 1e-7)


@pytest.mark.slow
def test_a_score_is_of_the_batches_of_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places.make_data(tmp_path)
    places.write_net(tmp_path, "lenet", places.LENET, 12, "max_iter: 3\ntest_interval: 99")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--solver=lenet_solver.prototxt", "--logtostderr"]) == 0
    words = ("test", "--model=lenet.prototxt", "--weights=lenet_iter_3.caffemodel")
    assert main([*words, "-iterations=6", "--logtostderr"]) == 0
    alone = places.log_text(capsys.readouterr().err)[-3:]
    done = places.caffe(tmp_path, *words, "-iterations=6", processes=2)
    assert alone[0].startswith("Loss: ")
    assert places.log_text(done.stderr)[-3:] == alone
