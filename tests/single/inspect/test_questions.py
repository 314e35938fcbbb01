"""`sirtaki ps` and `sirtaki stacks` on jobs that run, are stuck, stopped or dead."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sirtaki.inspect import ps
from sirtaki.inspect.live.view import HEADINGS
from tests import needs
from tests.single.launching import GRACE, LIMIT, SIRTAKI, Job

pytestmark = pytest.mark.job

# Each rank says that it is there, and rank 1 goes where the argument says.
PROGRAM = """
import ctypes, os, pickle, sys, time
import sirtaki as hvd

END = time.monotonic() + 100  # nothing lasts longer than its test

def in_a_loop():
    while time.monotonic() < END:
        pass

def with_the_lock():
    reader, writer = os.pipe()
    ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)

def asleep():
    time.sleep(100)

hvd.init(placement=pickle.loads(bytes.fromhex(sys.argv[2])) if len(sys.argv) > 2 else None)
sys.stdout.write(f"{hvd.rank()} {os.getpid()}\\n")
sys.stdout.flush()
if hvd.rank() == 1:
    globals()[sys.argv[1]]()
asleep()
"""


# Starts two such ranks, and lets one live that the other has left.
KEEPS_THE_LIVING = """
import pickle, subprocess, sys
import sirtaki as hvd

with hvd.placements(2) as given:
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv[1:], pickle.dumps(one).hex()]) for one in given
    ]
    for rank in ranks:
        rank.wait()
"""


@dataclass
class Running:
    """A job of two ranks, and their process ids."""

    pids: list[int]

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `sirtaki <what> <this job>`, with more arguments behind."""
        what, *more = arguments
        return sirtaki(what, str(self.pids[0]), *more)


def sirtaki(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SIRTAKI, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@contextlib.contextmanager
def running(where: str, script: str, job: Job, launcher: tuple[str, ...] = ()) -> Iterator[Running]:
    """A job whose rank 1 is at `where` in the program."""
    if launcher:
        process = subprocess.Popen(
            [*launcher, script, where], stdout=subprocess.PIPE, text=True, env=job.environment
        )
    else:
        process = job.start(*GRACE, "-np", "2", sys.executable, script, where)
    assert process.stdout is not None
    try:
        pids = {}
        while len(pids) < 2:
            line = process.stdout.readline()
            assert line, "the job has ended"
            words = line.rpartition(">:")[2].split()
            if len(words) == 2 and all(map(str.isdigit, words)):
                pids[int(words[0])] = int(words[1])
        yield Running([pids[0], pids[1]])
    finally:
        for pid in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
        job.wait_until_gone()


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_job_is_listed_with_its_ranks_and_command(script: str, job: Job) -> None:
    with running("asleep", script, job):
        [line] = [line for line in sirtaki("ps").stdout.splitlines() if script in line]
    assert " 0-1 of 2 " in line
    assert line.endswith(f"{script} asleep")


def test_a_job_that_has_ended_is_not_listed(script: str, job: Job) -> None:
    with running("asleep", script, job):
        pass
    assert script not in sirtaki("ps").stdout


def test_the_ranks_of_a_job_tell_what_they_are_doing(script: str, job: Job) -> None:
    with running("in_a_loop", script, job) as found:
        shown = found.ask("ps")
    assert [line.split(":")[0] for line in shown.stdout.splitlines()] == ["rank 0", "rank 1"]


def test_each_operation_of_a_rank_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ps, "find", lambda job: [None])
    monkeypatch.setattr(ps, "ask", lambda *_, **__: ["rank 0: idle\n  1 a\x1b", "rank 1: idle"])
    assert ps.main(["12345678"]) == 0
    assert capsys.readouterr().out.splitlines() == ["rank 0: idle", "  1 a?", "rank 1: idle"]


def test_a_job_none_of_whose_ranks_answers_is_said_to_be_stopped(script: str, job: Job) -> None:
    with running("asleep", script, job) as found:
        for pid in found.pids:
            os.kill(pid, signal.SIGSTOP)
        shown = found.ask("hang")
    assert (shown.returncode, shown.stdout) == (1, "")
    for rank, pid in enumerate(found.pids):
        told = f"rank {rank} (process {pid}): is stopped; kill -CONT {pid} resumes it\n"
        assert told in shown.stderr


def test_top_shows_each_rank_of_a_job_that_hangs(script: str, job: Job) -> None:
    with running("asleep", script, job) as found:
        shown = json.loads(found.ask("top", "--once", "--json").stdout)
        [head, *rows] = found.ask("top", "--once").stdout.splitlines()
    assert [one["pid"] for one in shown["ranks"]] == found.pids
    assert [one["rank"] for one in shown["ranks"]] == [0, 1]
    for one in shown["ranks"]:
        assert one["cpu"] < 0.2
        assert one["memory"] > 1 << 20
        assert one["does"] == "idle, in no operation yet"
        assert (one["step"], one["waiting"], one["waits_for"]) == (None, None, [])
    assert head.split() == list(HEADINGS)
    assert [row.split()[0] for row in rows] == ["0", "1"]


def test_top_of_a_job_that_is_not_there() -> None:
    shown = sirtaki("top", "no-such-job", "--once")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "no running job 'no-such-job'" in shown.stderr


def test_stacks_of_a_rank_in_a_python_loop(script: str, job: Job) -> None:
    with running("in_a_loop", script, job) as found:
        shown = found.ask("stacks", "--rank", "1", "--patience", "20")
    assert shown.returncode == 0
    assert f"rank 1 (process {found.pids[1]} on localhost): " in shown.stdout
    assert "in in_a_loop" in shown.stdout
    assert "python 3." in shown.stdout


def test_stacks_of_a_rank_in_c_code_that_holds_the_lock(script: str, job: Job) -> None:
    with running("with_the_lock", script, job) as found:
        shown = found.ask("stacks", "--rank", "1", "--patience", "0.5")
    assert shown.returncode == 0
    assert "a thread holds the interpreter's lock" in shown.stdout
    assert "in with_the_lock" in shown.stdout


def test_a_rank_that_holds_the_lock_goes_on_after_its_stacks_were_read(
    script: str, job: Job
) -> None:
    with running("with_the_lock", script, job) as found:
        first, second = (found.ask("stacks", "--patience", "0.5").stdout for _ in range(2))
    # The main thread's stack comes first, and once more in its place among all.
    assert first.count("in with_the_lock") == second.count("in with_the_lock") == 2


def test_a_stopped_rank_is_said_to_be_stopped(script: str, job: Job) -> None:
    with running("asleep", script, job) as found:
        os.kill(found.pids[1], signal.SIGSTOP)
        shown = found.ask("stacks")
        os.kill(found.pids[1], signal.SIGCONT)
    assert shown.returncode == 1
    assert f"is stopped; kill -CONT {found.pids[1]} resumes it" in shown.stdout
    assert "rank 0" in shown.stdout
    assert "in asleep" in shown.stdout


def test_a_dead_rank_is_said_to_have_ended(script: str, job: Job) -> None:
    launcher = (sys.executable, "-c", KEEPS_THE_LIVING)
    with running("asleep", script, job, launcher) as found:
        os.kill(found.pids[1], signal.SIGKILL)
        while Path(f"/proc/{found.pids[1]}/exe").exists():
            pass
        shown = found.ask("stacks")
    assert shown.returncode == 1
    assert f"process {found.pids[1]} has ended" in shown.stdout
    assert "in asleep" in shown.stdout


def test_stacks_of_a_job_of_torchrun(script: str, job: Job) -> None:
    needs.package("torch")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")
    with running("in_a_loop", script, job, launcher) as found:
        shown = found.ask("stacks", "--patience", "20")
    assert shown.returncode == 0
    assert "in in_a_loop" in shown.stdout
    assert "in asleep" in shown.stdout


def test_a_rank_that_is_none(script: str, job: Job) -> None:
    with running("asleep", script, job) as found:
        shown = found.ask("stacks", "--rank", "2")
    assert shown.returncode == 2
    assert shown.stderr == "sirtaki stacks: error: --rank 2: the job has ranks 0 to 1\n"


@pytest.mark.parametrize("command", ["ps", "stacks"])
def test_a_job_that_is_unknown(command: str) -> None:
    shown = sirtaki(command, "nonsense")
    assert shown.returncode == 2
    assert f"sirtaki {command}: error: no running job 'nonsense'" in shown.stderr
