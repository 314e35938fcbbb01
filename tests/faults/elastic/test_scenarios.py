"""What programs of each framework outlive, and what ends their job: the scenarios of Horovod."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.faults.elastic.test_jobs import ALONE, QUICK
from tests.single.launching import HOROVODRUN, Job

FRAMEWORKS = [
    pytest.param("torch", marks=pytest.mark.slow),
    pytest.param("tensorflow", marks=[pytest.mark.nightly, needs.installed("tensorflow")]),
    pytest.param("keras", marks=[pytest.mark.nightly, needs.installed("keras")]),
]
pytestmark = [
    pytest.mark.parametrize("framework", FRAMEWORKS),
]
PROGRAM = (sys.executable, str(Path(__file__).with_name("scenario.py")))
# Frameworks may need minutes to start on a machine that does much else.
LIMIT = 240.0
TWO_HOSTS = ("-np", "2", "-H", "localhost:1,127.0.0.1:1")


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def ends(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The worlds' sizes, as each process that came to the end tells them."""
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"<stdout>:end \d+ of (.*)$", done.stdout, re.MULTILINE))


def test_hosts_are_added_and_removed(job: Job, framework: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    flags = ("-np", "1", "--min-np", "1", "--max-np", "2")
    command = [*HOROVODRUN, *flags, "--host-discovery-script", f"cat {hosts}", *PROGRAM]
    changes = {"world 1": "localhost:1\n127.0.0.1:1\n", "world 1 2": "127.0.0.1:1\n"}
    environment = {**job.environment, "FRAMEWORK": framework, "WORLDS": "3"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as launcher:  # type: ignore[call-overload]
        lines = []
        for line in launcher.stdout:
            lines.append(line)
            if text := changes.pop(line.partition("[0]<stdout>:")[2].strip(), ""):
                hosts.write_text(text)
        assert launcher.wait(LIMIT) == 0, "".join(lines)
    assert "[1]<stdout>:end 1 of 1 2 1\n" in lines, "who came later has the state"


@pytest.mark.parametrize("how", ["raise", "exit", "kill"])
def test_a_rank_that_fails_is_replaced(job: Job, framework: str, how: str) -> None:
    extra = {"FRAMEWORK": framework, "FAULTS": f"{how}:1@5", "WORLDS": "2"}
    done = job.run(*TWO_HOSTS, "--min-np", "2", *QUICK, *PROGRAM, limit=LIMIT, **extra)
    assert ends(done) == {"2 2"}
    assert done.stdout.count(":end ") == 2


def test_the_job_shrinks_to_min_np_without_spares(job: Job, framework: str) -> None:
    extra = {"FRAMEWORK": framework, "FAULTS": "raise:0@5"}
    done = job.run(*TWO_HOSTS, "--min-np", "1", *ALONE, *PROGRAM, limit=LIMIT, **extra)
    assert ends(done) == {"2 1"}


@pytest.mark.parametrize(
    "how",
    [*(pytest.param(how, marks=pytest.mark.nightly) for how in ("raise", "exit")), "kill"],
)
def test_the_failure_of_all_ranks_ends_the_job(job: Job, framework: str, how: str) -> None:
    extra = {"FRAMEWORK": framework, "FAULTS": f"{how}:all@5"}
    done = job.run(*TWO_HOSTS, "--min-np", "1", *ALONE, *PROGRAM, limit=LIMIT, **extra)
    assert done.returncode == 1
    assert ":end " not in done.stdout


def test_the_reset_limit_ends_the_job(job: Job, framework: str) -> None:
    extra = {"FRAMEWORK": framework, "FAULTS": "kill:1@3 raise:2@6"}
    flags = ("-np", "3", "--min-np", "1", "--reset-limit", "1", *ALONE)
    done = job.run(*flags, *PROGRAM, limit=LIMIT, **extra)
    assert done.returncode == 1
    assert "number of resets during elastic job exceeded limit: 1" in done.stderr


def test_failures_on_all_hosts_end_the_job(job: Job, framework: str) -> None:
    extra = {"FRAMEWORK": framework, "FAULTS": "exit:1@3 kill:0@6"}
    done = job.run(*TWO_HOSTS, "--min-np", "1", *ALONE, *PROGRAM, limit=LIMIT, **extra)
    assert done.returncode == 1
    assert "no process of world 1 is left, so the state is lost" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("lost", ["rank", "host"])
def test_too_few_ranks_are_waited_for_until_the_elastic_timeout(
    job: Job, framework: str, tmp_path: Path, lost: str
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n127.0.0.1:1\n")
    loss = {"rank": {"FAULTS": "kill:1@5"}, "host": {"HOSTS": str(hosts), "THEN": "localhost:1"}}
    extra = {"FRAMEWORK": framework, **loss[lost]}
    # The first world is to come within that, too.
    flags = ("-np", "2", "--min-np", "2", "--elastic-timeout", "40", *ALONE)
    done = job.run(
        *flags, "--host-discovery-script", f"cat {hosts}", *PROGRAM, limit=LIMIT, **extra
    )
    assert done.returncode == 1
    assert "within 40 s (--elastic-timeout) 1 process(es) of the 2 that --min-np" in done.stderr


def test_hosts_change_while_a_rank_is_in_check_host_updates(
    job: Job, framework: str, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    flags = ("-np", "2", "--min-np", "2", "--max-np", "3")
    then = "localhost:2\n127.0.0.1:1\n"
    extra = {"FRAMEWORK": framework, "HOSTS": str(hosts), "THEN": then, "WORLDS": "2"}
    script = ("--host-discovery-script", f"cat {hosts}")
    done = job.run(*flags, *script, *PROGRAM, limit=LIMIT, **extra)
    assert ends(done) == {"2 3"}
    assert done.stdout.count(":end ") == 3
    assert "PeerLostError" not in done.stderr, "all ranks are interrupted together"
