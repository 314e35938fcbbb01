"""A job that hangs: the launcher names who holds up whom, where, and why; a slow one goes on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.single.launching import GRACE, SIRTAKI, Job, python

# Three equal steps; then rank 1 goes where the argument says, and the others wait for it.
PROGRAM = """
import ctypes, os, signal, sys, threading, time
import numpy as np
import sirtaki as hvd

def in_a_deadlock():
    one = threading.Lock()
    with one:
        one.acquire()

def in_a_branch():
    hvd.allreduce(np.ones(3), name="validation loss")

def in_a_loader():
    def next_batch():
        time.sleep(60)
    next_batch()

def with_another_name():
    pass

def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)

def with_the_lock():
    reader, writer = os.pipe()
    ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)

def after_an_exception():
    try:
        raise ValueError("bad sample")
    except ValueError:
        time.sleep(60)

def waiting_for_input():
    global kept
    kept = os.pipe()
    os.dup2(kept[0], 0)
    input()

def in_a_debugger():
    global kept
    kept = os.pipe()
    os.dup2(kept[0], 0)
    breakpoint()
    print("goes on")

def with_fewer_batches():
    pass

def receiving():
    hvd.recv(np.ones(3), 0, tag=5)

what = sys.argv[1]
hvd.init()
odd = hvd.rank() == 1
for step in range(3):
    hvd.allreduce(np.ones(3), name="grad.a")
    hvd.allreduce(np.ones(3), name="grad.b")
print(f"rank {hvd.rank()} is {os.getpid()};", flush=True)
if what == "with_fewer_batches" and not odd:
    hvd.allreduce(np.ones(3), name="grad.a")
elif what == "with_another_name":
    hvd.allreduce(np.ones(3), name="weights" if odd else "weight")
elif odd:
    globals()[what]()
hvd.allreduce(np.ones(3), name="metric")
"""


class Hanging:
    """A job of three ranks. text: what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.text = ""

    def until(self, part: str) -> str:
        """Read to the first line with this pattern; return it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.text += line
            if re.search(part, line):
                return line
        raise AssertionError(f"no {part!r} in:\n{self.text}")

    @property
    def pids(self) -> dict[str, str]:
        """The process of each rank that has said it."""
        return dict(re.findall(r"rank (\d) is (\d+);", self.text))


@contextlib.contextmanager
def hanging(job: Job, where: str, *flags: str) -> Iterator[Hanging]:
    flags = flags or ("--stall-check-warning-time-seconds", "1")
    command = [*flags, *GRACE, "-np", "3", sys.executable, "-c", PROGRAM, where]
    process = job.start(*command)
    try:
        yield Hanging(process)
    finally:
        for pid in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


FAULTS = {
    "in_a_deadlock": r"rank 1 waits for a lock or another thread of its own at <string>:\d+",
    "in_a_branch": (
        r"control flow depends on the rank: they wait in allreduce 'metric' and allreduce "
        r"'validation loss': <string>:\d+, and <string>:\d+"
    ),
    "in_a_loader": r"rank 1 waits for its data at <string>:\d+: a slow loader",
    "with_another_name": (
        r"<string>:\d+ gives other tensor names on other ranks: allreduce 'weights?' and "
        r"allreduce 'weights?'"
    ),
    "stopped": r"rank 1 is stopped by a signal: kill -CONT \d+ resumes it",
    "with_the_lock": r"rank 1 is in C code that holds Python's lock \(GIL\)",
    "after_an_exception": (
        r"rank 1 handles an exception that the others did not get \(ValueError: bad sample\)"
    ),
    "waiting_for_input": r"rank 1 waits for a line on standard input",
    "in_a_debugger": r"rank 1 is in a debugger \(pdb\): the job goes on when it does",
    "with_fewer_batches": r"rank 1 has come to allreduce 'metric', .*: uneven data, .* join\(\)",
}


# What only a process can show; made-up answers lead to the other causes in tests/single/hang.
QUICK = ("stopped", "with_the_lock", "in_a_loader", "with_another_name", "in_a_debugger")


@pytest.mark.parametrize(
    "where",
    [pytest.param(w, marks=() if w in QUICK else pytest.mark.slow) for w in FAULTS],
)
def test_the_report_of_a_hang_names_what_is_wrong(job: Job, where: str) -> None:
    with hanging(job, where) as ranks:
        ranks.until(f"likely cause: {FAULTS[where]}")
        ranks.until(r"more: sirtaki hang \w+ --stacks, sirtaki stacks \w+")
    assert re.search(r"has waited for \d+ s; called by ranks 0,2; missing ranks: 1 \(", ranks.text)


def test_the_report_shows_operation_ranks_process_and_line(job: Job) -> None:
    line = 1 + PROGRAM.split("\n").index("        one.acquire()")
    with hanging(job, "in_a_deadlock") as ranks:
        ranks.until("more: ")
        pid = ranks.pids["1"]
    shown = ranks.text[ranks.text.index("stalled: ") :].splitlines()
    assert re.fullmatch(
        r"stalled: no operation has ended for \d s; rank 1 held up ranks 0,2", shown[0]
    )
    assert re.fullmatch(
        r"  allreduce 'metric' has waited for \d s; called by ranks 0,2; "
        r"missing ranks: 1 \(localhost\)",
        shown[1],
    )
    assert re.fullmatch(
        rf"  rank 1 \(localhost, process {pid}\): waits for a lock or another thread, "
        r"in no operation; the last one was allreduce 'grad.b', \d s ago",
        shown[3],
    )
    assert shown[4].startswith(f"      <string>:{line} in in_a_deadlock")
    assert shown[6] == "  ranks 0,2 (localhost): waits in allreduce 'metric'"


def test_a_message_that_nobody_sends_is_reported_with_its_peer(job: Job) -> None:
    with hanging(job, "receiving") as ranks:
        ranks.until(r"receive with tag 5 has waited for \d s; called by rank 1; missing ranks: 0")


def test_a_job_is_asked_why_it_hangs_by_another_command_until_it_has_ended(job: Job) -> None:
    with hanging(job, "in_a_deadlock", "--no-stall-check") as ranks:
        ranks.until(r"rank 1 is \d+;")
        command = [*SIRTAKI, "hang", ranks.pids["1"], "--stacks"]
        text = ""
        while "missing ranks: 1" not in text:  # the others may not have come so far
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            text = done.stdout
    assert re.search(FAULTS["in_a_deadlock"], text)
    assert "in in_a_deadlock" in text
    assert "sirtaki/core/operations" in text  # the whole stack of those that wait
    pid = ranks.pids["1"]
    done = subprocess.run([*SIRTAKI, "hang", pid], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no running job {pid!r}" in done.stderr


HEALTHY = """
import os, sys, tempfile, time
import numpy as np
import sirtaki as hvd

def seconds(count, work):
    end = time.monotonic() + count
    while time.monotonic() < end:
        work()

def compiles():  # a call in C that lets no other thread run
    while time.monotonic() < end:
        sum(range(10_000_000))

def saves():
    with tempfile.TemporaryFile() as file:
        seconds(long, lambda: (file.seek(0), file.write(bytes(1 << 20)), time.sleep(0.01)))

hvd.init()
hvd.barrier()
compilation, long, stall = map(float, sys.argv[1:])
end = time.monotonic() + compilation
if hvd.rank() == 1:
    compiles()
hvd.allreduce(np.ones(3), name="compiled")
if hvd.rank() == 0:
    seconds(long, lambda: np.ones(1000).sum())
hvd.allreduce(np.ones(3), name="evaluated")
if hvd.rank() == 1:
    saves()
hvd.allreduce(np.ones(3), name="saved")
if hvd.rank() == 1:
    time.sleep(stall)
hvd.allreduce(np.ones(3), name="loaded")
for i in range(15):
    if hvd.rank() == 0:
        time.sleep(0.1)
    hvd.allreduce(np.ones(3), name="slow steps")
"""


# After how many seconds a hang is reported; how long a compilation, an evaluation and a checkpoint,
# and a loader's stall take. The second ones have the times of a real job, and the default limit.
@pytest.mark.parametrize(
    ("limit", "times"),
    [
        ("1", ("1.8", "1.8", "0.4")),
        pytest.param("10", ("40", "18", "8"), marks=pytest.mark.nightly),
    ],
)
def test_a_slow_job_is_not_called_a_hang(job: Job, limit: str, times: tuple[str, ...]) -> None:
    flags = ("--stall-check-warning-time-seconds", limit)
    done = job.run(*flags, "-np", "2", sys.executable, "-c", HEALTHY, *times, limit=240)
    assert done.returncode == 0, done.stderr
    assert "stalled" not in done.stderr, done.stderr
    told = re.findall(
        r"still making progress: rank (\d) at work;.*\n  allreduce '(\w+)'", done.stderr
    )
    assert set(told) <= {("1", "compiled"), ("0", "evaluated"), ("1", "saved")}
    assert ("0", "evaluated") in told, done.stderr
    assert "the job goes on, after " in done.stderr


def test_a_job_that_stalls_for_too_long_exits_with_70(job: Job) -> None:
    # Time for the report before the end, on a busy machine too.
    flags = ("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "6")
    with hanging(job, "with_another_name", *flags) as ranks:
        ranks.until("CollectiveTimeoutError")
        assert ranks._process.wait() == 70
    assert "stalled: " in ranks.text


FAILS = """
import os, signal, time
import numpy as np
import sirtaki as hvd
hvd.init()
for _ in range(3):
    hvd.allreduce(np.ones(3), name="grad")
if hvd.rank() == 1:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
if hvd.rank() == 2:
    time.sleep(60)
hvd.allreduce(np.ones(3), name="metric")
"""


def test_what_ranks_did_when_a_job_failed_is_kept_and_told(job: Job, tmp_path: Path) -> None:
    kept = {"SIRTAKI_POSTMORTEM": str(tmp_path)}
    done = job.run(*GRACE, "-np", "3", *python(FAILS), **kept)
    [folder] = re.findall(r"what the ranks did: sirtaki postmortem (\S+)", done.stderr)
    told = subprocess.run(
        [*SIRTAKI, "postmortem", folder], capture_output=True, text=True, check=True
    ).stdout
    assert "\nrank 1 on localhost failed first: killed by SIGKILL\n" in told
    assert re.search(r"\n  rank 1 \(localhost, process \d+\): dead", told), told
    assert "      <string>:12 in <module>" in told  # where rank 2 was
    last = told[told.index("the last operations of rank 1:\n") :].splitlines()[1:]
    assert [line.split(" (")[0].strip() for line in last] == [
        f"{number} allreduce 'grad'" for number in (1, 2, 3)
    ]


def test_nothing_is_kept_where_the_user_does_not_want_it(job: Job) -> None:
    done = job.run(*GRACE, "-np", "3", *python(FAILS), SIRTAKI_POSTMORTEM="0")
    assert done.returncode == 1
    assert "sirtaki postmortem" not in done.stderr


# Starts two ranks of its own, of which one goes to sleep.
OWN_PROCESSES = """
import pickle, subprocess, sys, time
import numpy as np
import sirtaki as hvd

if len(sys.argv) > 1:
    hvd.init(placement=pickle.loads(bytes.fromhex(sys.argv[1])))
    hvd.allreduce(np.ones(3), name="first")
    if hvd.rank() == 1:
        time.sleep(2.5)
    hvd.allreduce(np.ones(3), name="second")
    sys.exit()
with hvd.placements(2) as given:
    ranks = [
        subprocess.Popen([sys.executable, __file__, pickle.dumps(one).hex()]) for one in given
    ]
    sys.exit(sum(rank.wait() for rank in ranks))
"""


def test_without_our_launcher_the_lowest_rank_of_a_host_prints_the_report(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(OWN_PROCESSES)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("stalled: ") == 1, done.stderr
    line = 1 + OWN_PROCESSES.split("\n").index("        time.sleep(2.5)")
    assert re.search(
        r"sirtaki: stalled: no operation has ended for 1 s; rank 1 held up rank 0\n"
        r"  allreduce 'second' has waited for 1 s; called by rank 0; missing ranks: 1 \(\S+\)\n"
        rf"  likely cause: rank 1 does nothing at {script}:{line}; the others wait for it\n",
        done.stderr,
    ), done.stderr
