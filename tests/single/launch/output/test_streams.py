"""The launcher's own standard streams: missing, full, non-blocking, or of another encoding."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sirtaki.launch.output.output import Outputs
from sirtaki.launch.output.progress import Progress
from sirtaki.launch.output.streams import Streams
from sirtaki.launch.processes.events import Event
from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job, python


def run_shell(job: Job, redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher with the redirections of a shell."""
    words = ["sh", "-c", f'exec "$@" {redirections}', "sh", *HOROVODRUN, *GRACE, *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=LIMIT, env=job.environment, check=False
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_nowhere(job: Job, tmp_path: Path, closed: str) -> None:
    code = (
        "import os, pathlib, sys\nprint('o')\nprint('e', file=sys.stderr)\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['HOROVOD_RANK']).write_text('done')"
    )
    done = run_shell(job, closed, "-np", "2", *python(code))
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert (">&-" in closed.split()) == (done.stdout == "")


def test_a_failure_is_an_exit_code_though_the_streams_are_closed(job: Job) -> None:
    assert run_shell(job, ">&- 2>&-", "-np", "2", "false").returncode == 1


def test_a_full_disk_under_the_output_ends_the_job_in_order(job: Job) -> None:
    code = "import time; print('x', flush=True); time.sleep(600)"
    done = run_shell(job, "> /dev/full", "-np", "2", *python(code))
    assert done.returncode == 1
    assert "error: cannot write the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_under_a_dry_run_is_an_error(job: Job) -> None:
    done = run_shell(job, "> /dev/full", "-np", "2", "--dry-run", "true")
    assert done.returncode == 1
    assert done.stderr == "horovodrun: error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_is_lost_where_the_output_does_not_block(job: Job, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = "for i in range(20000): print('x' * 99, i)"
    launcher = subprocess.Popen(
        [*HOROVODRUN, *GRACE, "-np", "1", *python(code)],
        stdout=writer,
        env={**job.environment, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writer)
    with launcher, os.fdopen(reader, "rb") as output:
        output.read(1)
        # Now the pipe runs full.
        time.sleep(1)
        lines = output.read().splitlines()
        assert launcher.wait(LIMIT) == 0
    assert len(lines) == 20000
    assert lines[-1] == b"[0]<stdout>:" + b"x" * 99 + b" 19999"


def test_characters_that_the_output_does_not_have_are_replaced() -> None:
    # Only the launcher's output is Latin-1: the worker prints UTF-8, as most programs do.
    script = (
        "import sys\n"
        "from sirtaki.launch.api import run\n"
        "sys.stdout.reconfigure(encoding='latin-1', errors='strict')\n"
        "print(run(lambda: print('\\xe9\\u2588', flush=True)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.stderr == b""
    assert done.stdout == b"[0]<stdout>:\xe9?\n[None]\n"


def test_files_of_processes_of_another_host_are_closed_with_it(tmp_path: Path) -> None:
    outputs = Outputs(4, sys.stdout, sys.stderr, str(tmp_path))
    streams = Streams(outputs, selectors.DefaultSelector(), Progress(None), lambda _: None)

    def still_open() -> int:
        files = Path("/proc/self/fd").iterdir()
        return sum(str(tmp_path) in os.path.realpath(each) for each in files)

    for rank, host in ((0, "a"), (1, "b"), (2, "b")):
        streams.open(Event("started", rank), host)
    assert still_open() == 6
    streams.end("b")
    assert still_open() == 2
    streams.write(0, "stdout", b"")
    streams.end("a")
    assert still_open() == 0
