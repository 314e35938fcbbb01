"""Every kind of fault in every phase of an elastic job: it goes on, and has lost nothing."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.harm import Harm
from tests.chaos.job import HANGS_SECONDS, Failure, Job, hosts_of_own_memory
from tests.chaos.phases import Phase
from tests.chaos.schedule import OF_A_HOST, Fault, Kind
from tests.faults.elastic.test_jobs import IMPATIENT
from tests.hosts.bed import SSH_PORT, Bed, reason_to_skip
from tests.hosts.jobs import GRACE, RUN

# The first process of the second host.
VICTIM = 2
# Each kind once, the phases in turn; the other combinations take minutes.
SOONER = {(kind, list(Phase)[number % 4]) for number, kind in enumerate(Kind)}
CASES = [
    pytest.param(
        kind,
        phase,
        marks=pytest.mark.slow if (kind, phase) in SOONER else pytest.mark.nightly,
        id=f"{kind.value} {phase.value}",
    )
    for kind in Kind
    for phase in Phase
]


@pytest.fixture(scope="module")
def own_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if (reason := reason_to_skip()) is not None:
        pytest.skip(reason)
    with hosts_of_own_memory(3, tmp_path_factory.mktemp("bed")) as bed:
        yield bed


def await_file(path: Path) -> None:
    deadline = time.monotonic() + HANGS_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"nobody came to {path.name}"
        time.sleep(0.02)


@pytest.mark.parametrize(("kind", "phase"), CASES)
def test_a_job_outlives_it(own_bed: Bed, tmp_path: Path, kind: Kind, phase: Phase) -> None:
    # Orders are obeyed by user code: then it is the others who wait in the collective.
    in_user_code = kind in (Kind.RAISES, Kind.EXITS, Kind.MEMORY) and phase is Phase.COLLECTIVE
    variables = {
        "CHAOS_PHASE": (Phase.USER_CODE if in_user_code else phase).name,
        "CHAOS_VICTIM": str(VICTIM),
    }
    job = Job(own_bed, tmp_path, slots=(2, 2, 1), variables=variables)
    harm = Harm(own_bed, tmp_path)
    try:
        if phase is Phase.RECOVERY:
            job.await_epoch(1)
            harm.do(Fault(0, Kind.KILLED, list(harm.ranks()).index(4)))
        await_file(tmp_path / "there")
        # The host of the victim, or itself.
        harm.do(Fault(0, kind, 0 if kind in OF_A_HOST else list(harm.ranks()).index(VICTIM)))
        time.sleep(0.5)
        (tmp_path / "go").touch()
        reached = job.epochs
        job.await_epoch(reached + 2, harm.undo_what_is_due)
        harm.undo_all()
        job.stop()
    except Failure as failure:
        pytest.fail(f"{failure}\n{''.join(job.lines[-80:])}")
    finally:
        harm.undo_all()
        (tmp_path / "go").touch()
        job.close()
        harm.clean_up()


REPRODUCIBLE = str(Path(__file__).parents[1] / "faults/elastic/reproducible.py")
# In a part, between the exchange and the step, and between the step and its records.
WITHIN = "1@40:part:KILL 2@60:before:STOP 0@120:after:KILL 3@160:commit:STOP"
COMPANY = "80:4 150:4 190:4 300:4"
CUT_AT, STEPS = 200, 500
UNTIL = re.compile(rf"<stdout>:parts {CUT_AT} ")


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("norm", marks=pytest.mark.slow),
        pytest.param("transformer", marks=pytest.mark.nightly),
    ],
)
def test_ranks_killed_stopped_and_cut_off_change_no_bit(own_bed: Bed, model: str) -> None:
    env = {**os.environ, "MODEL": model, "STEPS": str(STEPS)}
    alone = own_bed.hosts[0].run(sys.executable, REPRODUCIBLE, env=env)
    (expected,) = re.findall(r"^hash (\w+)", alone.stdout, re.MULTILINE)
    hosts = ",".join(
        f"{host.address}:{n}" for host, n in zip(own_bed.hosts, (2, 1, 1), strict=True)
    )
    flags = ["-np", "4", "--min-np", "1", "-H", hosts, "-p", str(SSH_PORT), *IMPATIENT, *GRACE]
    harm = {"FAULTS": WITHIN, "COMPANY": COMPANY}
    command = [*RUN, *flags, sys.executable, REPRODUCIBLE]
    with own_bed.hosts[0].running(*command, env={**env, **harm}) as job:
        assert job.stdout is not None
        lines = []
        for line in job.stdout:
            lines.append(line)
            if UNTIL.search(line):
                own_bed.hosts[2].cut_off()
            elif "nothing was heard of it" in line:
                own_bed.hosts[2].reconnect()
        own_bed.hosts[2].reconnect()
    output = "".join(lines)
    sizes = [int(size) for size in re.findall(r"^world \d+: (\d) process", output, re.MULTILINE)]
    assert {2, 3, 4} <= set(sizes)
    assert sizes[-1] == 4
    assert set(re.findall(r"<stdout>:hash (\w+)", output)) == {expected}, output[-3000:]
