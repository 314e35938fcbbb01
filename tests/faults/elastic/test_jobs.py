"""Elastic jobs outlive lost processes, and those that are left have counted each step once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirtaki.launch.errors import REQUEUE
from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job

TRAIN = (sys.executable, str(Path(__file__).with_name("train.py")))
# No lost process is replaced while the test lasts.
ALONE = ("--blacklist-cooldown-range", "60", "60")
QUICK = ("--blacklist-cooldown-range", "1", "1")
IMPATIENT = ("--unresponsive-seconds", "1")


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def ends(done: subprocess.CompletedProcess[str]) -> list[tuple[int, str]]:
    """Of each process that came to the end: its number, and the sizes of its state's worlds."""
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"<stdout>:end (\d+) exact (.*)$", done.stdout, re.MULTILINE)
    assert done.stdout.count(":end ") == len(found), done.stdout
    return sorted((int(number), sizes) for number, sizes in found)


def test_survivors_go_on_in_smaller_worlds_whoever_is_lost(job: Job, tmp_path: Path) -> None:
    faults = "orphan:1@9 kill:0@18 raise:3@27"
    extra = {"FAULTS": faults, "ORPHAN": str(tmp_path / "pid")}
    done = job.run("-np", "4", "--min-np", "1", *ALONE, *TRAIN, **extra)
    assert ends(done) == [(2, "4 3 2 1")]
    assert "process 1 on localhost ended with SIGKILL; the job goes on" in done.stderr
    assert "the orphan is gone" in done.stdout, "what a lost process had started ends with it"
    assert "ArithmeticError: step 27 of somebody's program" in done.stderr


def test_a_lost_process_is_replaced_by_one_that_gets_the_state(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "1", *QUICK, *TRAIN, FAULTS="kill:1@5", UNTIL="2")
    assert ends(done) == [(0, "2 1"), (2, "2 1")]
    assert "world 2: 2 process(es), 1 of them new" in done.stderr


def test_a_spare_takes_a_lost_place_at_once(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "2", "--spares", "1", *TRAIN, FAULTS="kill:1@9")
    assert ends(done) == [(0, "2"), (2, "2")]
    assert "world 1: 2 process(es), 1 of them new" in done.stderr


def test_a_process_that_is_stopped_or_whose_engine_is_silent_is_ended(job: Job) -> None:
    """The guardian's own child for process 2 is a shell, which is not stopped."""
    shell = ("bash", "-c", 'if [ $SIRTAKI_PROCESS = 1 ]; then exec "$0" "$1"; fi; "$0" "$1"')
    faults = {"FAULTS": "stop:1@9 stop:2@20"}
    flags = ("-np", "3", "--min-np", "1", *IMPATIENT, *ALONE)
    done = job.run(*flags, *shell, *TRAIN, **faults)
    assert ends(done) == [(0, "3 2 1")]
    assert "process 1 on localhost ended with SIGKILL" in done.stderr
    assert "process 2 was stopped, or its engine silent, for 1 s, and is killed" in done.stderr


@pytest.mark.slow
def test_a_process_in_a_long_call_or_held_by_a_debugger_is_healthy(job: Job) -> None:
    faults = {"FAULTS": "compute:1@9 debug:1@19"}
    patience = ("--unresponsive-seconds", "2")  # below the 3 s of a fault, above a full machine's
    done = job.run("-np", "2", "--min-np", "1", *patience, *TRAIN, **faults)
    assert ends(done) == [(0, "2"), (1, "2")]


@pytest.mark.parametrize(
    "hosts",
    [
        "localhost:1,127.0.0.1:2",
        # Their leader waits for the dead one until the time to meet is over.
        pytest.param("localhost:3", marks=pytest.mark.slow),
        pytest.param("127.0.0.1:2,localhost:1", marks=pytest.mark.nightly),
    ],
)
def test_a_process_may_die_while_its_world_meets(job: Job, hosts: str) -> None:
    flags = ("-np", "3", "--min-np", "2", "-H", hosts, *ALONE)
    done = job.run(*flags, *TRAIN, FAULTS="DIES_IN_INIT")
    assert ends(done) == [(0, "2"), (2, "2")]


def test_pending_operations_fail_once_and_not_in_the_next_world(job: Job, tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object
errors, handles = [], []
@elastic.run
def train(state):
    if hvd.size() == 3:
        if os.environ["SIRTAKI_PROCESS"] == "1":
            while len(list(Path(sys.argv[1]).iterdir())) < 2:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        handles.extend(hvd.allreduce_async(np.ones(3), name=f"gradient {i}") for i in range(5))
        Path(sys.argv[1], str(hvd.rank())).touch()
    for handle in handles:
        try:
            hvd.synchronize(handle)
        except Exception as error:
            errors.append(error)
    if hvd.size() == 3:
        raise errors[0]
    return hvd.allreduce(np.ones(3), op=hvd.Sum, name="gradient 0")
hvd.init()
total = train(elastic.ObjectState(broadcast_object, hvd.rank))
lost, used = errors[:5], errors[5:]
print("lost", *{type(each).__name__ for each in lost}, len({str(each) for each in lost}))
print("used", *{type(each).__name__ for each in used}, len(used), total)
"""
    command = (sys.executable, "-c", code, str(tmp_path))
    done = job.run("-np", "3", "--min-np", "2", *ALONE, *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(":lost PeerLostError 1\n") == 2, done.stdout
    assert done.stdout.count(":used ValueError 5 [2. 2. 2.]\n") == 2, done.stdout


def test_the_variables_of_a_rank_change_with_it_and_those_of_its_host_stay(job: Job) -> None:
    """Two names of this machine are two hosts."""
    code = """
import os, sys
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
print("rank", hvd.rank(), *(os.environ[f"HOROVOD_{name}"] for name in ("RANK", "SIZE", "HOSTNAME")))
"""
    flags = ("-np", "3", "--min-np", "1", *ALONE, "-H", "localhost:1,127.0.0.1:2")
    done = job.run(*flags, sys.executable, "-c", code, TRAIN[1], FAULTS="kill:2@9 kill:0@18")
    assert ends(done) == [(1, "3 2 1")]
    assert "process 2 on 127.0.0.1 ended" in done.stderr
    assert "<stdout>:rank 0 0 1 127.0.0.1\n" in done.stdout


@pytest.mark.parametrize("elastic", [(), ("--min-np", "1")])
def test_no_failure_has_the_exit_code_that_asks_a_scheduler_to_requeue(
    job: Job, elastic: tuple[str, ...]
) -> None:
    done = job.run("-np", "1", *elastic, sys.executable, "-c", f"raise SystemExit({REQUEUE})")
    assert done.returncode == 1


def test_an_error_that_comes_again_at_the_same_step_ends_the_job(job: Job) -> None:
    faults = {"FAULTS": "raise:all@20", "STEPS": "1000"}
    done = job.run("-np", "2", "--min-np", "1", *GRACE, *TRAIN, **faults)
    assert done.returncode == 1
    why = "the same error came twice after 20 commits: ArithmeticError: step 20 of somebody's"
    assert why in done.stderr


def test_a_job_whose_processes_all_fail_at_the_start_ends(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "1", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 1
    assert "ended with code 3, and no process came to a world" in done.stderr


def test_programs_that_join_no_world_run_as_in_any_job(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "1", sys.executable, "-c", "print('ran')")
    assert (done.returncode, done.stdout.count("ran")) == (0, 2)


def test_a_world_that_would_be_too_small_is_waited_for_and_then_given_up(job: Job) -> None:
    waiting = ("--elastic-timeout", "3", *ALONE)
    done = job.run("-np", "2", "--min-np", "2", *waiting, *TRAIN, FAULTS="kill:1@5")
    assert done.returncode == 1
    assert "within 3 s (--elastic-timeout) 1 process(es) of the 2 that --min-np" in done.stderr


def test_a_job_ends_at_its_reset_limit(job: Job) -> None:
    limit = ("--reset-limit", "1")
    done = job.run("-np", "3", "--min-np", "1", *limit, *TRAIN, FAULTS="kill:0@5 kill:1@9")
    assert done.returncode == 1
    assert "number of resets during elastic job exceeded limit: 1" in done.stderr


def test_a_rank_that_ends_well_too_early_is_not_replaced(job: Job) -> None:
    done = job.run("-np", "3", "--min-np", "2", *QUICK, *TRAIN, FAULTS="exit:1@9")
    assert ends(done) == [(0, "3 2"), (2, "3 2")]


def test_ranks_that_a_finished_one_leaves_too_few_are_told(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "2", *TRAIN, FAULTS="exit:1@9")
    assert done.returncode == 1
    assert "processes 0 lost the others, who have ended with exit code 0" in done.stderr


def test_hosts_of_a_script_come_and_go(job: Job, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    flags = ("-np", "1", "--min-np", "1", "--max-np", "2")
    script = ("--host-discovery-script", f"cat {hosts}")
    command = [*HOROVODRUN, *flags, *script, *TRAIN]
    environment = {**job.environment, "STEPS": "30", "UNTIL": "9"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as launcher:
        assert launcher.stdout is not None
        lines = []
        for line in launcher.stdout:
            lines.append(line)
            if "[0]<stdout>:first world" in line:
                hosts.write_text("localhost:1\n127.0.0.1:1\n")
            if "reset 0 2" in line:
                hosts.write_text("127.0.0.1:1\n")
            if "reset 0 1" in line:
                launcher.terminate()
        assert launcher.wait(LIMIT) == 128 + signal.SIGTERM
    text = "".join(lines)
    assert "host 127.0.0.1 has come with 1 slot(s)" in text
    assert "host localhost has gone from the list of hosts" in text
    assert "the new world has no place for this process, which ends" in text


def test_a_discovery_script_that_fails_at_the_start_is_shown(job: Job) -> None:
    script = ("--host-discovery-script", "echo no hosts today >&2; exit 3")
    done = job.run("-np", "1", *script, *TRAIN)
    assert done.returncode == 2
    assert "ended with code 3: no hosts today" in done.stderr


def test_nothing_is_left_of_a_job_whose_launcher_is_killed(job: Job) -> None:
    command = [*HOROVODRUN, "-np", "2", "--min-np", "1", *TRAIN]
    environment = {**job.environment, "UNTIL": "9", "FAULTS": "note:all@5 mark:all@7"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as launcher:  # type: ignore[call-overload]
        text = ""
        for line in launcher.stdout:
            text += line
            if text.count("step 7") == 2:
                os.kill(launcher.pid, signal.SIGKILL)
    job.wait_until_gone()
    ended = "sirtaki: the launcher is gone, so the processes here are ended; the last checkpoint is"
    assert f"{ended} /there (step 5)\n" in text
