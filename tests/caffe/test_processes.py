"""Training by several processes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.caffe import places

NETS = {
    "lenet": places.LENET,
    "alexnet": places.ALEXNET,
    "autoencoder": places.AUTOENCODER,
    "ignoring": places.IGNORING,
}
BATCH = 12
# Several nets one after the other, so that Python and PyTorch are started once.
TRAIN_ALL = (
    "import sys; from sirtaki.caffe.commands.main import main; "
    "sys.exit(sum(main(['train', f'--solver={net}_solver.prototxt', '--logtostderr']) "
    "for net in sys.argv[1:]))"
)


def train_all(folder: Path, processes: int) -> subprocess.CompletedProcess[str]:
    for name, text in NETS.items():
        # A test batch has the mean over those of its own labels that count.
        more = "test_interval: 99\ntest_initialization: false" if name == "ignoring" else ""
        places.write_net(folder, name, text, BATCH // processes, more)
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
    return folder, places.log_text(train_all(folder, 1).stderr)


def shown(log: list[str]) -> list[tuple[str, float]]:
    """What stands before the numbers of losses, outputs and rates, and the numbers."""
    pattern = r"((?:Iteration \d+).*(?:loss|lr) = |    (?:Train|Test) net output #\d+: \S+ = )(\S+)"
    found = (re.match(pattern, line) for line in log)
    pairs = ((match.group(1), match.group(2)) for match in found if match)
    return [(re.sub(r" \(.* iters\)", "", words), float(value)) for words, value in pairs]


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_processes_do_together_what_one_does_with_the_whole_batch(
    processes: int, alone: tuple[Path, list[str]], tmp_path: Path
) -> None:
    reference, log = alone
    places.make_data(tmp_path)
    done = train_all(tmp_path, processes)
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
