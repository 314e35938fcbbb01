"""`sirtaki bench scaling`: what limits a script is planted, and named; figures are exact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.observe.scaling import causes, command, curve, watch
from sirtaki.observe.scaling.causes import Cause, Point
from sirtaki.observe.scaling.runs import Run
from sirtaki.observe.scaling.watch import Look, RankFigures, Sample
from sirtaki.questions.kernel import schedstat
from tests.single.launching import LIMIT, SIRTAKI

# A step: load, compute, reduce. A planted limiter replaces one of them.
SCRIPT = """
import sys, time
import numpy as np, sirtaki as hvd
hvd.init()
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
gradient = np.ones(int({count}), np.float32)
def load():
    {load}
def compute():
    {compute}
for step in range({steps}):
    load()
    compute()
    hvd.allreduce(gradient, name="gradient")
print("done")
"""


def script(folder: Path, count: float = 1e3, steps: int = 100_000, **parts: str) -> list[str]:
    path = folder / "train.py"
    parts = {"load": "pass", "compute": "burn(0.002)", **parts}
    path.write_text(SCRIPT.format(count=count, steps=steps, **parts))
    return [sys.executable, str(path)]


def scaling(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SIRTAKI, "bench", "scaling", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


BRIEF = ("--warm-up", "0.3", "--seconds", "1.5")


def rank(number: int = 0, **changes: Any) -> RankFigures:
    """A rank that computes on one core all the time."""
    usual: dict[str, Any] = {"communicating": 0.0, "waiting": 0.0, "cores": 1.0, "queued": 0.0}
    return RankFigures(number, **{**usual, "idle": 0.0, "bytes": 0.0, **changes})


def run(
    step: float | None,
    *ranks: RankFigures,
    seconds: float = 10.0,
    others: float = 0,
    cores: float | None = None,
) -> Run:
    return Run(len(ranks), None, seconds, step, 100.0, others, cores, list(ranks))


ALONE = run(0.1, rank())


def main_cause(of: Run, cpus: float = 8.0, base: Run = ALONE) -> Cause:
    found = causes.causes_of(of, base, cpus)
    assert found
    assert [cause.share for cause in found] == sorted((c.share for c in found), reverse=True)
    assert all(cause.fix for cause in found)
    return found[0]


def test_a_script_without_losses_is_limited_by_nothing() -> None:
    points = causes.compare([run(0.1, rank(), rank(1)), ALONE], 8.0, strong=False)
    assert [(point.ranks, point.speed_up, point.efficiency) for point in points] == [
        (1, 1.0, 1.0),
        (2, 2.0, 1.0),
    ]
    assert [causes.verdict(point) for point in points] == ["nothing limits it"] * 2


def test_fixed_work_that_is_divided_has_half_the_step_on_two_ranks() -> None:
    _, two = causes.compare([ALONE, run(0.05, rank(), rank(1))], 8.0, strong=True)
    assert (two.speed_up, two.efficiency, two.causes) == (2.0, 1.0, [])


def test_an_efficiency_that_cannot_be_is_doubted_and_never_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Something slowed the run with one rank down, fifty times."""
    runs = {1: run(5.0, rank(), others=1.5), 2: run(0.1, rank(), rank(1))}
    monkeypatch.setattr(command, "run_script", lambda _, __, ranks, ___: runs[ranks])
    assert command.main(["-np", "1,2", "--json", "--", "true"]) == 1
    shown = capsys.readouterr()
    one, two = json.loads(shown.out)["points"]
    assert (one["efficiency"], two["efficiency"], two["speed_up"]) == (1.0, None, None)
    why = "no conclusion for 2 ranks: they would be more than 1.2 times as efficient as 1"
    assert why in two["doubt"]
    assert f"error: {why}" in shown.err
    assert command.main(["-np", "1,2", "--", "true"]) == 1
    shown = capsys.readouterr()
    assert "other programs used 1.5 cores" in shown.err
    assert shown.out.splitlines()[2].split()[:5] == ["2", "100.0", "ms", "-", "-"]
    assert "2 ranks" not in shown.out


def test_a_rank_that_the_others_wait_for_is_a_straggler_and_its_line_is_named() -> None:
    """Where it takes longer than the others, not where it is most often."""
    computes = {"train.py:5 in forward: matmul(x)": 0.4}
    loads = {"train.py:9 in load: sleep(1)": 0.2, "train.py:8 in load: open(x)": 0.15}
    late = rank(1, waiting=0.0, communicating=0.05, idle=0.5, lines={**computes, **loads})
    first = rank(waiting=0.5, communicating=0.55, lines=computes)
    found = main_cause(run(0.2, first, late))
    assert (found.name, found.share) == ("stragglers", 0.5)
    assert found.what.endswith("for rank 1, which takes longer at train.py:9 in load: sleep(1)")
    evenly = rank(1, waiting=0.0, communicating=0.05, idle=0.5, lines=computes)
    assert main_cause(run(0.2, first, evenly)).what.endswith("wait 50% of a step for rank 1")


def test_communication_counts_as_far_as_the_step_is_longer_for_it() -> None:
    talks = [rank(number, communicating=0.6, bytes=1e8) for number in range(2)]
    found = main_cause(run(0.2, *talks))
    assert (found.name, found.share) == ("exposed communication", 0.5)
    assert "of 100.0 MB" in found.what
    # The same hidden behind computation costs nothing.
    assert causes.causes_of(run(0.1, *talks), ALONE, 8.0) == []


def test_communication_beside_the_computation_is_not_exposed() -> None:
    """All the time an operation is open, but calls block for a fifth of it."""
    talks = [rank(number, communicating=0.9, exposed=0.2) for number in range(2)]
    found = main_cause(run(0.2, *talks, cores=8.0), base=run(0.15, rank()))
    assert (found.name, found.share) == ("exposed communication", 0.2)


def test_ranks_on_several_hosts_have_the_cores_of_all() -> None:
    hosts = [Look(at, {"a": 10 * at, "b": 20 * at}, {}, {"a": 2.0, "b": 4.0}) for at in (0.0, 1.0)]
    assert watch.cores(hosts) == 6.0
    assert watch.others(hosts) == 30.0
    base = run(0.1, rank(cores=2.0))
    spread = run(0.1, *(rank(number, cores=2.0) for number in range(3)), cores=6.0)
    assert causes.causes_of(spread, base, 2.0) == []


def test_flags_of_the_launcher_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def noted(command: object, flags: object, ranks: int, _: object) -> Run:
        seen.append((command, flags, ranks))
        return ALONE

    monkeypatch.setattr(command, "run_script", noted)
    flags = ["-H", "a:1,b:1", "-p", "2222", "--verbose"]
    assert command.main(["-np", "2", *flags, "--steps", "9", "--", "true", "-x"]) == 0
    assert seen == [(["true", "-x"], flags, 2)]


def test_more_threads_than_cores_are_named() -> None:
    base = run(0.1, rank(cores=2.0))
    ranks = [rank(number, cores=0.5) for number in range(4)]
    found = main_cause(run(0.4, *ranks, others=1.5), cpus=2.0, base=base)
    assert (found.name, found.share) == ("cores", 0.75)
    assert found.what.startswith(
        "4 ranks of which each alone uses 2.0 cores: there are 2, and other programs use 1.5; "
    )
    assert found.fix.startswith("measure on a quiet machine")


def test_ranks_that_are_ready_without_a_core_are_named() -> None:
    found = main_cause(run(0.15, *(rank(number, queued=0.3) for number in range(2))))
    assert (found.name, found.share) == ("cores", 0.3)


def test_computation_that_takes_more_processor_time_is_memory() -> None:
    found = main_cause(run(0.2, rank(), rank(1)))
    assert (found.name, found.share) == ("memory bandwidth", 0.5)
    assert "2.0 times as much processor time as with 1 rank:" in found.what


def test_input_limits_one_rank_too_and_its_line_is_named() -> None:
    """The line where it sleeps, however often it was seen to compute elsewhere."""
    lines = {"train.py:5 in forward: matmul(x)": 0.6, "train.py:3 in load: read()": 0.3}
    asleep = {"train.py:3 in load: read()": 0.3}
    found = main_cause(run(0.1, rank(cores=0.6, idle=0.4, lines=lines, idle_lines=asleep)))
    assert (found.name, found.share) == ("input", 0.4)
    assert found.what.endswith("most often at train.py:3 in load: read()")
    unknown = main_cause(run(0.1, rank(cores=0.6, idle=0.4, lines=lines)))
    assert unknown.what.endswith("for 40% of a step")


@given(
    st.lists(
        st.builds(
            RankFigures,
            rank=st.integers(0, 9),
            communicating=st.floats(0, 1),
            waiting=st.floats(0, 1),
            cores=st.floats(0, 64),
            queued=st.floats(0, 1),
            idle=st.floats(0, 1),
            bytes=st.floats(0, 1e12),
            lines=st.dictionaries(st.text(max_size=9), st.floats(0, 1), max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    st.floats(1e-6, 1e3),
)
def test_shares_of_a_step_are_shares(ranks: list[RankFigures], step: float) -> None:
    for cause in causes.causes_of(run(step, *ranks), ALONE, 2.0):
        assert 0.05 <= cause.share <= 1.0


def test_times_between_looks_become_figures_of_a_rank() -> None:
    def sample(completed: int, cpu: float, awake: float, queued: float) -> Sample:
        blocked = {"at": 5.0 + cpu, "exposed": 0.5 * cpu, "calls": completed}
        return Sample(
            *(completed, cpu, queued, awake, 0.1, 0.25, 0.125, 1e6, 20.0, "train.py:4"),
            asleep=completed > 0,
            host="a",
            blocked={**blocked, "completed": completed},
        )

    looks = [
        Look(10.0, {"a": 100.0}, {0: sample(0, 1.0, 1.0, 0.0)}),
        Look(14.0, {"a": 108.0}, {0: sample(80, 3.0, 2.5, 1.0)}, {"a": 8.0}),
    ]
    (found,) = watch.figures(looks)
    seen = {"train.py:4": 1.0}, {"train.py:4": 0.5}
    assert found == RankFigures(0, 0.25, 0.125, 0.5, 0.25, 0.25, 1e5, *seen, 0.5)
    assert watch.cores(looks) is None
    assert watch.step_seconds(looks) == 0.1
    assert watch.steps_done(looks) == 40.0
    assert watch.others(looks) == 1.5


def test_operations_without_names_that_come_again_are_steps() -> None:
    def sample(completed: int) -> Sample:
        return Sample(completed, 0.0, 0.0, 0.0, None, 0.5, 0.0, 1e6, 4.0, "")

    looks = [Look(0.0, {}, {0: sample(10)}), Look(5.0, {}, {0: sample(30)})]
    assert watch.step_seconds(looks) == 0.25
    assert watch.steps_done(looks) == 20.0


@given(st.text(max_size=60))
def test_any_schedstat_is_read(text: str) -> None:
    assert all(value >= 0 for value in schedstat(text))


def test_schedstat_is_read_in_seconds() -> None:
    assert schedstat("2000000000 500000000 17\n") == (2.0, 0.5)


POINTS = [
    Point(1, 0.1, 1.0, 1.0, []),
    Point(4, 0.2, 2.0, 0.5, [Cause("input", 0.4, "slow", "load ahead")]),
]


@pytest.mark.parametrize("width", [20, 40, 100])
def test_the_curve_fits_the_terminal(width: int) -> None:
    lines = curve.table(POINTS, width)
    assert max(map(len, lines)) <= max(width, len(lines[0]))
    assert lines[2].split()[:4] == ["4", "200.0", "ms", "2.00"]
    bars = [line.count("#") for line in lines[1:]]
    assert (bars[1] == 2 * bars[0] > 0) == (width > 50)


def test_each_cause_has_its_cure() -> None:
    lines = curve.reasons(POINTS)
    assert lines[:2] == ["1 rank: nothing limits it", "4 ranks: input (40%)"]
    assert lines[2:] == ["  input: slow", "    fix: load ahead"]


def test_a_picture_of_the_curve_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curve.draw(POINTS, str(tmp_path / "curve.svg"))
    curve.draw(POINTS, str(tmp_path / "curve.png"))
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the command to run is missing"),
        (["--json", "/no/folder/x", "--", "true"], "no folder for /no/folder/x"),
        (["--steps", "0", "--", "true"], "--steps 0 is not a number of steps"),
        (["-H", "a:2,b:2", "--", "true"], "say with -np at which numbers of ranks"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("numbers", ["0,1", "x", "-2"])
def test_numbers_of_ranks_that_are_none_are_refused(numbers: str) -> None:
    with pytest.raises(SystemExit):
        command.main(["-np", numbers, "--", "true"])


def test_what_was_measured_before_ctrl_c_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object, __: object, ranks: int, ___: object) -> Run:
        if ranks == 2:
            raise KeyboardInterrupt
        return ALONE

    monkeypatch.setattr(command, "run_script", interrupted)
    assert command.main(["-np", "1,2,4", "--", "true"]) == 1
    shown = capsys.readouterr()
    assert "100.0 ms" in shown.out
    assert "the run with 2 rank(s) was ended by Ctrl-C" in shown.err


@pytest.mark.job
def test_a_script_that_fails_at_two_ranks_is_named_and_one_rank_is_shown() -> None:
    code = "import os, sys; sys.exit('no place here' if os.environ['RANK'] == '1' else 0)"
    done = scaling("-np", "1,2", *BRIEF, "--", sys.executable, "-c", code)
    assert done.returncode == 1
    assert "the run with 2 rank(s) ended with code 1; it said:" in done.stderr
    assert "no place here" in done.stderr
    assert "the time of the whole script is compared" in done.stdout


@pytest.mark.job
@pytest.mark.slow
def test_a_script_that_asks_for_no_operation_is_given_up() -> None:
    code = "import sirtaki, time; sirtaki.init(); time.sleep(60)"
    done = scaling("-np", "1", "--patience", "1", "--", sys.executable, "-c", code)
    assert done.returncode == 1
    assert "no steps of 1 rank were seen within 1 s" in done.stderr
    assert "does the script call hvd.init()" in done.stderr


@pytest.mark.job
@pytest.mark.slow
def test_steps_are_counted_in_a_script_that_knows_nothing_of_it(tmp_path: Path) -> None:
    brief = ("--warm-up", "0.1", "--steps", "20")
    done = scaling("-np", "1,2", "--json", *brief, "--", *script(tmp_path, compute="burn(0.01)"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [each["ranks"] for each in result["points"]] == [1, 2]
    assert [each["exit_code"] for each in result["runs"]] == [None, None]
    for each in result["runs"]:
        assert each["step"] >= 0.01
        assert each["steps"] >= 20
        assert [one["rank"] for one in each["of_ranks"]] == list(range(each["ranks"]))


@pytest.mark.job
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "parts", "words"),
    [
        ("stragglers", 1e3, {"load": "time.sleep(0.1 * hvd.rank())"}, "in load: time.sleep(0.1 *"),
        ("exposed communication", 4e7, {"compute": "pass"}, "160.0 MB"),
        ("input", 1e3, {"load": "time.sleep(0.1)"}, "in load: time.sleep(0.1)"),
    ],
)
def test_a_planted_limiter_is_named(
    tmp_path: Path, name: str, count: float, parts: dict[str, str], words: str
) -> None:
    done = scaling("-np", "1,2", "--json", *BRIEF, "--", *script(tmp_path, count, **parts))
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["points"][1]["causes"][0]
    assert first["name"] == name, first
    assert words in first["what"]
    assert first["share"] > 0.5
