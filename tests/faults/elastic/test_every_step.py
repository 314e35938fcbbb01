"""A process may die at any point of a step; the others go on from a whole step, bit for bit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.single.launching import Job

STEPS = (sys.executable, str(Path(__file__).with_name("steps.py")))


class Found(NamedTuple):
    """What a state was when a step began."""

    parameters: str
    buffers: str
    random: str


class Run:
    """What the processes of a job have printed: of each world its states, by process and step."""

    def __init__(self, output: str) -> None:
        self.states: dict[int, dict[tuple[int, int], Found]] = {1: {}, 2: {}}
        for line in re.findall(r"\[(\d+)\]<stdout>:at (\d) (\d+) (\w+) (\w+) (\w+)", output):
            process, world, step = map(int, line[:3])
            found = self.states[world]
            assert (process, step) not in found, "a step was computed again within a world"
            found[process, step] = Found(*line[3:])
        pairs = re.findall(r"\[(\d+)\]<stdout>:applied (\d+)", output)
        self.applied = [(int(process), int(step)) for process, step in pairs]
        self.loaded = re.findall(r"<stdout>:loaded (\w+ \w+)", output)
        self.ends = re.findall(r"<stdout>:end (\d) (\w+)", output)


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


@pytest.fixture(scope="module")
def one_behind(job: Job) -> Run:
    return trained(job, POINT="one is behind")


@pytest.mark.slow
def test_survivors_go_on_from_the_newest_whole_step(one_behind: Run) -> None:
    first = check_equal_survivors(one_behind, "one is behind")
    behind, ahead = (one_behind.states[2][process, first] for process in (0, 2))
    assert behind.parameters == ahead.parameters
    assert behind.random != ahead.random, "each rank's own generators go on"


@pytest.mark.slow
def test_what_pytorch_loads_with_an_optimizer_is_there_when_a_place_comes(one_behind: Run) -> None:
    assert one_behind.loaded == ["False True"] * 3


LATER = pytest.mark.slow
NIGHTLY = pytest.mark.nightly


@pytest.fixture(scope="module")
def fault_free(job: Job) -> Run:
    return trained(job)


@LATER
@pytest.mark.parametrize(
    "point",
    [
        "in the allreduce",
        "in step",
        pytest.param("before forward", marks=NIGHTLY),
        pytest.param("in backward", marks=NIGHTLY),
        pytest.param("before step", marks=NIGHTLY),
        pytest.param("before bookkeeping", marks=NIGHTLY),
        pytest.param("before commit", marks=NIGHTLY),
        pytest.param("one is behind", marks=NIGHTLY),
    ],
)
def test_survivors_go_on_bit_for_bit(job: Job, fault_free: Run, point: str) -> None:
    check_survivors(fault_free, trained(job, POINT=point), point)


@LATER
@pytest.mark.parametrize("point", ["in step", pytest.param("before step", marks=NIGHTLY)])
def test_survivors_go_on_from_copies_where_steps_are_not_whole(job: Job, point: str) -> None:
    check_survivors(trained(job, OP="Adasum"), trained(job, OP="Adasum", POINT=point), point)


def trained(job: Job, **environment: str) -> Run:
    # What PyTorch loads with an optimizer takes three processes on a busy machine their time.
    done = job.run("-np", "3", "--min-np", "2", *STEPS, limit=150, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(done.stdout)


def check_equal_survivors(run: Run, point: str) -> int:
    """Return the step at which those that are left go on, from the same state."""
    began = dict(sorted(run.states[2], reverse=True))
    assert set(began) == {0, 2}
    assert began[0] == began[2]
    first = began[0]
    for process in began:
        # No step is lost, and at most one is computed again.
        assert run.applied.count((process, first + 1)) <= 2
        assert all(run.applied.count((process, step)) == 1 for step in range(first + 2, 8))
    assert first in (4, 5)
    if point == "one is behind":
        assert first == 5
        assert run.applied.count((0, 5)) == 0, "process 0 took the step from process 2"
    assert len(set(run.ends)) == 1, "the survivors have equal parameters"
    assert len(run.ends) == 2
    return first


def check_survivors(fault_free: Run, run: Run, point: str) -> None:
    # Every state of the first world is one of the run without faults.
    assert run.states[1].items() <= fault_free.states[1].items()
    first = check_equal_survivors(run, point)
    for process in (0, 2):
        expected, found = fault_free.states[1][process, first], run.states[2][process, first]
        known = [fault_free.states[1][each, first] for each in range(3)]
        # The statistics are those of one rank; with Adasum so are the momenta.
        assert found.parameters in {each.parameters for each in known}
        assert found.buffers in {each.buffers for each in known}
        assert found.random == expected.random, "each rank's own generators go on"
