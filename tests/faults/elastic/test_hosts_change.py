"""Hosts of an elastic job come, go, shrink and are odd while it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests import needs
from tests.faults.elastic.test_jobs import ALONE, IMPATIENT, QUICK, TRAIN, ends
from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job

FLAGS = ("-np", "1", "--min-np", "1", "--max-np", "2")


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def lived(
    job: Job, hosts: Path, changes: Sequence[tuple[str, str]], *command: str, **extra: str
) -> str:
    """Write hosts anew each time a line has the next words; after the last, end the job.

    Returns the output.
    """
    left = list(changes)
    with subprocess.Popen(
        [*HOROVODRUN, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**job.environment, "UNTIL": "9", **extra},
    ) as launcher:
        assert launcher.stdout is not None
        lines = []
        for line in launcher.stdout:
            lines.append(line)
            if not left or left[0][0] not in line:
                continue
            text = left.pop(0)[1]
            if left:
                hosts.write_text(text)
            else:
                launcher.send_signal(signal.SIGTERM)
        text = "".join(lines)
        assert launcher.wait(LIMIT) == 128 + signal.SIGTERM, text
    return text


@pytest.mark.parametrize(
    "way",
    [
        "script",
        pytest.param("file", marks=pytest.mark.slow),
        pytest.param("pods", marks=pytest.mark.nightly),
    ],
)
def test_a_host_gets_more_slots_and_fewer(job: Job, tmp_path: Path, way: str) -> None:
    """A file, too, is read again, as is what the MPI Operator mounts in the launcher's pod."""
    one, two = ("localhost", "localhost:2")
    hosts, flags, form, extra = tmp_path / "hosts", [*FLAGS], "{}\n", {}
    if way == "script":
        flags += ["--host-discovery-script", f"cat {hosts}"]
    elif way == "file":
        flags += ["--hostfile", str(hosts)]
        two = "localhost slots=2"
    else:
        hosts, form = tmp_path / "discover_hosts.sh", "#!/bin/sh\necho {}\n"
        extra = {
            "K_MPI_JOB_ROLE": "launcher",
            "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
        }
    hosts.write_text(form.format(one))
    changes = [
        ("first world", form.format(two)),
        ("reset 0 2", form.format(one)),
        ("reset 0 1", ""),
    ]
    text = lived(job, hosts, changes, *flags, *TRAIN, **extra)
    assert "host localhost has 1 slot(s) left: processes 1 leave" in text
    assert "the new world has no place for this process, which ends" in text
    assert "PeerLostError" not in text, "they leave politely"


@pytest.mark.slow
def test_a_host_that_comes_and_goes_is_left_alone_for_longer_each_time(
    job: Job, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    steady, both = "localhost:1\n", "localhost:1\n127.0.0.1:1\n"
    hosts.write_text(steady)
    changes = [
        ("first world", both),
        ("host 127.0.0.1 has come", steady),
        ("host 127.0.0.1 has gone", both),
        ("has come with 1 slot(s), again, and takes new processes in 1 s", steady),
        ("host 127.0.0.1 has gone", both),
        ("has come with 1 slot(s), again, and takes new processes in 2 s", ""),
    ]
    lived(job, hosts, changes, *FLAGS, "--host-discovery-script", f"cat {hosts}", *TRAIN)


@pytest.mark.slow
def test_one_who_is_left_alone_goes_on_with_a_newcomer(job: Job, tmp_path: Path) -> None:
    """Nobody was lost, so it has nothing to ask for; but the newcomer has."""
    hosts = tmp_path / "hosts"
    one, both = "localhost:1\n", "localhost:1\n127.0.0.1:1\n"
    hosts.write_text(both)
    changes = [
        ("first world", one),
        ("host 127.0.0.1 has gone", both),
        ("[2]<stdout>:trains", ""),
    ]
    script = ("--host-discovery-script", f"cat {hosts}")
    extra = {"CHECKPOINT": str(tmp_path / "checkpoint")}
    text = lived(job, hosts, changes, "-np", "2", "--min-np", "2", *script, *TRAIN, **extra)
    assert "world 1: 2 process(es), 1 of them new" in text
    assert text.count("left at") == 2, "both have committed the last step"


@pytest.mark.slow
def test_what_a_script_says_wrongly_later_is_told_and_changes_nothing(
    job: Job, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    changes = [
        ("first world", "<html>\n"),
        ("printed '<html>': expected lines such as node-a", "exit 3\n"),
        ("ended with code 3; the hosts stay as they were", "localhost:1\nlocalhost:2\n"),
        ("with 1 and with 2 slots: the last line counts", "localhost:2\n"),
        ("reset 0 2", ""),
    ]
    script = f'h=$(cat {hosts}); [ "$h" = "exit 3" ] && exit 3; echo "$h"'
    lived(job, hosts, changes, *FLAGS, "--host-discovery-script", script, *TRAIN)


@needs.program("ssh")
def test_a_host_that_nobody_knows_is_named_and_the_job_goes_on_without_it(job: Job) -> None:
    script = ("--host-discovery-script", "printf 'localhost:1\\nno-such-host.invalid:1\\n'")
    done = job.run(*FLAGS, *script, *ALONE, *TRAIN)
    assert ends(done) == [(0, "1")]
    assert "host no-such-host.invalid (processes 1) was lost: " in done.stderr


def test_too_few_hosts_end_the_job_after_the_elastic_timeout(job: Job) -> None:
    script = ("--host-discovery-script", "echo localhost:1")
    done = job.run("-np", "2", *script, *TRAIN, HOROVOD_ELASTIC_TIMEOUT="2")
    assert done.returncode == 1
    assert "within 2 s (--elastic-timeout)" in done.stderr
    assert "process(es) of the 2 that --min-np wants were ready" in done.stderr


def test_a_job_whose_processes_are_all_killed_at_once_ends(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "1", *QUICK, *GRACE, *TRAIN, FAULTS="kill:all@9")
    assert done.returncode == 1
    assert "no process of world" in done.stderr
    assert "is left, so the state is lost" in done.stderr


@pytest.mark.slow
def test_it_goes_on_from_its_last_checkpoint_if_there_is_one(job: Job) -> None:
    fault = {"FAULTS": "note:all@7 kill:0@9 kill:1@9", "STEPS": "30"}
    done = job.run("-np", "2", "--min-np", "2", *QUICK, *IMPATIENT, *TRAIN, **fault)
    assert ends(done) == [(2, "2"), (3, "2")]
    assert "new processes begin anew: the last checkpoint is /there (step 7)" in done.stderr


def test_a_state_that_cannot_be_pickled_ends_the_job_with_its_name(job: Job) -> None:
    code = """
import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object
class Socket:
    def __deepcopy__(self, memo):
        return self
    def __reduce__(self):
        raise TypeError("a socket")
hvd.init()
elastic.run(lambda state: None)(elastic.ObjectState(broadcast_object, hvd.rank, link=Socket()))
"""
    done = job.run("-np", "2", "--min-np", "1", *QUICK, *GRACE, sys.executable, "-c", code)
    assert done.returncode == 1
    assert "the attribute 'link' of the state, a Socket, cannot be pickled: a socket" in done.stderr


def test_a_process_of_another_version_gets_no_place(job: Job) -> None:
    """The others do not fail by it as they would if it were in their world."""
    code = """
import os, sys, sirtaki
if os.environ["SIRTAKI_PROCESS"] == "2":
    sirtaki.__version__ = "0.1"
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""
    command = (sys.executable, "-c", code, TRAIN[1])
    flags = ("-np", "3", "--min-np", "2", *ALONE)
    done = job.run(*flags, *command, STEPS="20")
    assert ends(done) == [(0, "2"), (1, "2")]
    assert "process 2 runs Sirtaki 0.1, this job " in done.stderr
