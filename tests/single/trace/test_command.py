"""`sirtaki trace` on a job that runs, with a rank that sleeps longer than the others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirtaki.observe.trace import files
from tests.single.launching import LIMIT, SIRTAKI, Job, python
from tests.single.trace.made_up import trace

pytestmark = pytest.mark.job

PROGRAM = """
import os, sys, time
import numpy as np
import sirtaki as hvd

hvd.init()
print(f"rank {hvd.rank()} is {os.getpid()};", flush=True)
while True:
    with hvd.trace("load"):
        time.sleep(0.03 if hvd.rank() == 1 else 0.001)
    hvd.allreduce(np.ones(1000, np.float32), name="grad")
    if hvd.allreduce(np.array([os.path.exists(sys.argv[1])]), op=hvd.Max, name="end")[0]:
        break
"""


def sirtaki(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*SIRTAKI, "trace", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class Running:
    """A job on three ranks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        text = ""
        while len(set(re.findall(r"rank (\d) is \d+;", text))) < 3:
            text += process.stdout.readline()
        found = re.findall(r"rank (\d) is (\d+);", text)
        self.pids = {int(rank): int(pid) for rank, pid in found}
        self.name = str(self.pids[0])


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Running]:
    """A job that runs until there is a file `end` in the folder."""
    job = Job()
    process = job.start("-np", "3", *python(PROGRAM), str(folder / "end"))
    try:
        yield Running(process)
        (folder / "end").touch()
        assert process.wait(LIMIT) == 0  # a monitor has never ended it
    finally:
        process.kill()
        process.communicate()
        job.wait_until_gone()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with started(tmp_path_factory.mktemp("job")) as job:
        yield job


def test_the_rank_that_is_late_is_in_the_file_and_in_the_report(
    running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json.gz"
    code, out, err = sirtaki("start", running.name, "-o", str(path), "--seconds", "1")
    assert (code, err) == (0, "")
    assert re.search(r"trace\.json\.gz: 3 ranks, \d\d+ operations", out)
    code, out, err = sirtaki("report", str(path))
    assert (code, err) == (0, "")
    assert re.search(r"^ *1\* ", out, re.MULTILINE)
    assert re.search(r"rank 1 \(.*\) held up the others for \d\d% .*: its 'load' takes", out)
    assert "elsewhere; line: <string>:10 in <module>" in out
    code, out, _ = sirtaki("report", str(path), "--json")
    assert json.loads(out)["stragglers"] == [1]


def test_it_is_stopped_where_it_was_to_be_written(running: Running, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert sirtaki("start", running.name, "-o", str(path))[0] == 0
    code, _, err = sirtaki("start", running.name)
    assert code == 2
    assert re.fullmatch(r"sirtaki trace start: error: a trace has run for \d+ s\n", err)
    assert sirtaki("stop", running.name)[0] == 0
    events = json.loads(path.read_text())["traceEvents"]
    names = {(event["pid"], event["name"]) for event in events if event["ph"] == "X"}
    assert {(rank, "allreduce grad") for rank in range(3)} <= names
    assert {(rank, "load") for rank in range(3)} <= names
    code, _, err = sirtaki("stop", running.name)
    assert (code, err) == (2, "sirtaki trace stop: error: no trace runs\n")


def test_a_stopped_rank_is_named_and_the_others_are_recorded(
    running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    os.kill(running.pids[2], signal.SIGSTOP)
    try:
        code, _, err = sirtaki("start", running.name, "-o", str(path), "--seconds", "0.1")
    finally:
        os.kill(running.pids[2], signal.SIGCONT)
    assert code == 1
    assert f"rank 2: is stopped; kill -CONT {running.pids[2]} resumes it" in err
    ranks = json.loads(path.read_text())["otherData"]["sirtaki"]["ranks"]
    assert [one["rank"] for one in ranks] == [0, 1]


@pytest.mark.slow
def test_what_was_recorded_of_a_job_that_ends_is_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with started(tmp_path) as job:
        recorder = subprocess.Popen(
            [*SIRTAKI, "trace", "start", job.name, "-o", str(path), "--seconds", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(2)  # it asks twice a second
    out, err = recorder.communicate(timeout=LIMIT)
    assert re.search(r"3 ranks, \d\d+ operations", out)
    assert (recorder.returncode, len(re.findall(r"rank \d: process \d+ has ", err))) == (1, 3)
    assert files.read(str(path)).ranks[2].operations


def test_a_file_that_cannot_be_written_is_named_before_anything_is_recorded(
    running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "trace.json"
    code, _, err = sirtaki("start", running.name, "-o", str(path))
    assert code == 2
    assert re.search(r"sirtaki trace start: error: .*No such file or directory: .*missing", err)
    assert sirtaki("stop", running.name)[2] == "sirtaki trace stop: error: no trace runs\n"


def test_a_job_that_is_not_there_is_named() -> None:
    for what in ("start", "stop"):
        code, _, err = sirtaki(what, "nosuchjob")
        assert code == 2
        assert "no running job 'nosuchjob'" in err


def test_files_of_two_jobs_are_not_put_together(tmp_path: Path) -> None:
    one, other, both = (str(tmp_path / name) for name in ("a.json", "b.json", "c.json"))
    files.write(trace(), one)
    different = trace()
    different.job = "beef"
    files.write(different, other)
    code, _, err = sirtaki("merge", one, other, "-o", both)
    assert (code, err) == (
        2,
        "sirtaki trace merge: error: the files are of different jobs: beef, cafe\n",
    )
    assert sirtaki("merge", one, one, "-o", both)[0] == 0
    assert files.read(both) == trace()


@pytest.mark.slow
def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = str(tmp_path / "a.json")
    files.write(trace(), path)
    picture = tmp_path / "a.svg"
    assert sirtaki("report", path, "--plot", str(picture))[0] == 0
    assert "<svg" in picture.read_text()
