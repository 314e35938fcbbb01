"""The stages of testing, and what is said of them."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tools.stages.runner import Result, Runner, conclude, counted, missing
from tools.stages.table import QUICK_CPP, TIERS, Stage

ROOT = Path(__file__).resolve().parents[3]
READS = ("tools/stages/", "Makefile", "CONTRIBUTING.md")

MAKEFILE = """
good:
	@echo "=== 3 passed, 1 skipped in 0.10s ==="
bad:
	@echo "=== 1 failed, 2 passed in 0.10s ==="; false
long:
	@echo "[1]<stdout>:==== rank 1 failed tests/a.py::test_b (call) ===="
	@echo "the reason"; seq 400; false
endless:
	@echo "begins"; sleep 600
poor:
	@echo "SKIPPED [1] tests/a.py:3: missing: root"
	@echo "=== 1 skipped in 0.10s ==="
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    return Runner(tmp_path / "logs", 2)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("=== 3 passed, 1 skipped in 0.10s ===", {"passed": 3, "skipped": 1}),
        ("2 passed in 0.2s\n=== 1 failed, 1 error in 2s ===", {"passed": 2, "failed": 2}),
        ("[0]<stdout>:== 5 passed in 1.0s (0:00:01) ==\n[1]<stdout>:== 5 passed in 1.0s ==",
         {"passed": 5}),
        ("[doctest] test cases: 2 | 1 passed | 1 failed | 3 skipped", {"passed": 1, "failed": 1}),
        (2 * "[doctest] test cases: 9 | 9 passed | 0 failed | 1 skipped\n", {"passed": 9}),
        ("nothing", {}),
    ],
)  # fmt: skip
def test_tests_are_counted_once_however_many_ranks_run_them(
    text: str, counts: dict[str, int]
) -> None:
    assert counted(text) == counts


def test_what_is_missing_is_told_and_what_does_not_apply_is_not() -> None:
    text = (
        "[1]<stdout>:SKIPPED [2] tests/a.py:3: missing: root\n"
        "SKIPPED [1] tests/b.py: missing: root\n"
        "SKIPPED [1] tests/b.py:9: one rank cannot disagree with itself\n"
    )
    assert missing(text) == ["missing: root"]


def test_a_stage_waits_for_others_and_is_left_out_when_one_fails(runner: Runner) -> None:
    stages = [
        Stage("last", ("good",), 1, after=("bad",)),
        Stage("bad", ("bad",), 1, after=("first",)),
        Stage("first", ("good",), 1),
        Stage("alone", ("good",), 1, after=("not in this tier",)),
    ]
    found = {result.stage.name: result for result in runner.run(stages)}
    assert {name: result.code for name, result in found.items()} == {
        "first": 0,
        "alone": 0,
        "bad": 2,
        "last": 1,
    }
    assert found["first"].counts == {"passed": 3, "skipped": 1}
    assert not found["last"].log.exists()


def test_a_failed_stage_shows_its_first_failure_and_its_end(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run([Stage("stage", ("long",), 1)])
    shown = capsys.readouterr().out.splitlines()
    assert {"the reason", "1", "400"} <= {*shown}
    assert "200" not in shown
    assert shown.count("400") == 1


def test_a_stage_that_hangs_is_ended_and_fails(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.stages.runner._GRACE", 0.01)
    [result] = runner.run([Stage("endless", ("endless",), 0)])
    assert result.code == -signal.SIGKILL
    assert {"begins", "ended: the stage took too long, or the run was stopped"} <= {
        *capsys.readouterr().out.splitlines()
    }


@pytest.mark.parametrize(
    ("name", "complete", "status"),
    [("good", True, 0), ("bad", False, 1), ("poor", False, 0), ("poor", True, 1)],
)
def test_a_failure_or_a_lack_where_nothing_may_be_missing_fails_the_run(
    name: str, complete: bool, status: int, runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    results: list[Result] = runner.run([Stage(name, (name,), 1)])
    assert conclude(results, 1.0, complete) == status
    said = capsys.readouterr().out
    assert ("skipped for want of: root" in said) == (name == "poor")
    assert ("failed: make bad" in said) == (name == "bad")
    assert re.search(r"^\d+ passed, \d+ failed, \d+ skipped$", said, re.MULTILINE)


def test_the_table_of_budgets_is_the_one_that_is_run() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| ([\d.]+) \|", page, re.M)
    assert [(tier, name, float(minutes)) for tier, name, minutes in rows] == [
        (tier, stage.name, stage.minutes) for tier, stages in TIERS.items() for stage in stages
    ]


@pytest.mark.parametrize("tier", TIERS)
def test_stages_are_targets_of_the_makefile_and_wait_for_stages_that_exist(tier: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    names = [stage.name for stage in TIERS[tier]]
    assert len(set(names)) == len(names)
    for stage in TIERS[tier]:
        assert re.search(rf"^[\w -]*\b{stage.make[0]}\b[\w -]*:", makefile, re.MULTILINE)
        assert set(stage.after) <= set(names)


def test_slow_tests_that_make_test_leaves_out_are_in_the_next_tier() -> None:
    left_out = {
        stage.make[0]
        for stage in TIERS["test"]
        if any("not slow" in part or part == QUICK_CPP for part in stage.make)
    }
    run = {
        stage.make[0]
        for stage in TIERS["test-all"]
        if not any("not slow" in part or part == QUICK_CPP for part in stage.make)
    }
    assert left_out <= run
