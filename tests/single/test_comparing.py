"""`sirtaki bench compare`: one script over Gloo and over Sirtaki, and what turns tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki.observe.compare import command
from sirtaki.observe.compare.turns import NoTurn, Turn, conclude
from sirtaki.timed_steps import GLOO, HEAD_BYTES, SIRTAKI, TIME, Steps
from tests.single.launching import LIMIT
from tests.single.launching import SIRTAKI as PROGRAM

SCRIPTS = {
    "ddp": """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    "hvd": """
import torch, horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(8, 8)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
""",
}
STEPS = """
import os
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


def turns(*steps: float, others: float = 0.0) -> list[Turn]:
    """Pairs in the order in which they are taken."""
    order = command._order(len(steps) // 2)
    return [Turn(by, step, 100, others) for by, step in zip(order, steps, strict=True)]


def test_each_goes_first_in_every_other_pair() -> None:
    assert command._order(2) == [GLOO, SIRTAKI, SIRTAKI, GLOO]


def test_pairs_that_agree_have_a_ratio() -> None:
    found = conclude(turns(0.10, 0.08, 0.09, 0.10, 0.20, 0.17), cores=4)
    assert found.ratios == pytest.approx([0.8, 0.9, 0.85])
    assert (found.ratio, found.doubt) == (pytest.approx(0.85), "")


def test_pairs_that_disagree_have_none() -> None:
    found = conclude(turns(0.10, 0.08, 0.12, 0.10, others=0.5), cores=4)
    assert found.ratio is None
    assert found.doubt == (
        "no conclusion: the pairs of turns disagree, from 0.80 to 1.20; other programs use "
        "0.5 of 4 cores; measure again on a quiet machine"
    )


def test_a_busy_machine_has_none_though_pairs_agree() -> None:
    found = conclude(turns(0.10, 0.08, 0.08, 0.10, others=1.5), cores=4)
    assert found.ratio is None
    assert "the pairs of turns agree: other programs use 1.5 of 4 cores" in found.doubt


def test_a_turn_without_a_partner_does_not_count() -> None:
    assert conclude(turns(0.1, 0.08)[:1], cores=4).ratios == []


def test_only_the_outer_step_of_an_optimizer_that_wraps_another_counts(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path))
    for _ in range(2):
        steps.begin()
        steps.begin()
        steps.end()
        steps.end()
    [file] = tmp_path.iterdir()
    assert file.stat().st_size == HEAD_BYTES + 2 * TIME.size


def compared(monkeypatch: pytest.MonkeyPatch, steps: list[Turn | NoTurn], *flags: str) -> int:
    """What the command returns when turns go like this."""

    def next_turn(*_: object) -> Turn:
        found = steps.pop(0)
        if isinstance(found, NoTurn):
            raise found
        return found

    monkeypatch.setattr(command, "take_turn", next_turn)
    return command.main([*flags, "--", "true"])


def test_the_ratio_is_printed_with_each_pair(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(monkeypatch, [*turns(0.10, 0.08, 0.08, 0.10)], "--pairs", "2") == 0
    assert capsys.readouterr().out.splitlines() == [
        "PAIR    GLOO  SIRTAKI  RATIO",
        "   1  100 ms  80.0 ms   0.80",
        "   2  100 ms  80.0 ms   0.80",
        "On 2 ranks a step over Sirtaki takes 0.80 times as long as over Gloo.",
    ]


def test_programs_get_one_object_and_no_ratio_of_a_noisy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = [*turns(0.10, 0.08, 0.50, 0.10)]
    assert compared(monkeypatch, [*noisy], "--pairs", "2", "--json") == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["benchmark"], found["ranks"], found["ratio"]) == ("compare", 2, None)
    assert [one["by"] for one in found["turns"]] == [GLOO, SIRTAKI, SIRTAKI, GLOO]
    assert "error: no conclusion: the pairs of turns disagree, from 0.80 to 5.00" in shown.err


def test_what_was_measured_before_a_failure_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(monkeypatch, [*turns(0.10, 0.08), NoTurn("why")], "--pairs", "2") == 1
    shown = capsys.readouterr()
    assert "0.80" in shown.out
    assert shown.err.endswith("sirtaki bench compare: error: why\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "the command to run is missing"), (["--json", "/no/x", "--", "true"], "no folder for")],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    flags = ("--pairs", "1", "--warm-up", "0.001", "--json")
    return subprocess.run(
        [*PROGRAM, "bench", "compare", *flags, "--", sys.executable, str(folder / "train.py")],
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
        check=False,
    )


@pytest.mark.job
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hvd", pytest.param("ddp", marks=pytest.mark.nightly)])
def test_an_unchanged_script_runs_over_both(kind: str, tmp_path: Path) -> None:
    """On a busy machine there is no ratio, but turns there are: each says who moved its data."""
    found = json.loads(run(tmp_path, SCRIPTS[kind] + STEPS).stdout)
    assert found["error"] == ""
    assert [one["by"] for one in found["turns"]] == [GLOO, SIRTAKI]
    assert all(one["steps"] >= 10 for one in found["turns"])


@pytest.mark.job
@pytest.mark.slow
def test_a_script_that_names_sirtaki_cannot_run_over_gloo(tmp_path: Path) -> None:
    done = run(tmp_path, SCRIPTS["ddp"].replace('"gloo"', '"sirtaki"') + STEPS)
    assert done.returncode == 1
    assert "the script's data went by sirtaki, not by gloo: it chooses by itself" in done.stderr
