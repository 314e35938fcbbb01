"""A job of a scheduler as its launcher follows it; the tasks are started here, without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sirtaki.launch.scheduled import task as scheduled_task
from sirtaki.launch.scheduled.folder import JOB, Log, Record, create_folder
from tests.single.launching import LIMIT, Job, python

pytestmark = pytest.mark.timeout(120)

# Follows the commands in argv[3], as JSON, whose tasks use the folder in argv[1].
FOLLOW = """
import json, os, sys
from pathlib import Path
from sirtaki.launch.scheduled import watch as following
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.scheduled.watch import Follower
from sirtaki.launch.hosts.slots import Host, allocate
from sirtaki.launch.scheduled.job import ScheduledPlan
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.processes.signals import SignalWatch
commands = json.loads(sys.argv[3])
settings = Settings(allocate([Host("here", len(commands))], len(commands)), ["x"], grace=0.3)
plan = ScheduledPlan(commands, dict(os.environ), {}, listen=sys.argv[2] == "listen")
following._STARTER_SECONDS = 1.0
following._TOUCH_SECONDS = 0.5
with SignalWatch() as signals:
    try:
        errors = Destination(sys.stderr)
        follower = Follower(plan, Path(sys.argv[1]), settings, errors, signals, lambda: False)
        outcome = follower.run()
        if outcome.first_error is not None:
            print("FirstError", outcome.first_error.rank, outcome.first_error.error)
        print(outcome)
    except LaunchError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
"""
TASK = (sys.executable, str(scheduled_task.__file__))


def job_folder(tmp_path: Path, code: str, size: int, listen: bool, **more: object) -> Path:
    """The folder of a job whose ranks run `code`."""
    folder = create_folder(tmp_path, "job")
    job: dict[str, Any] = {
        "command": python(code),
        "directory": str(folder),
        "environment": {},
        "environments": [{}] * size,
        "defaults": [{}] * size,
        "grace": 0.3,
        "listen": listen,
        "output": None,
        "timestamps": False,
        "verbose": False,
        **more,
    }
    (folder / JOB).write_text(json.dumps(job))
    return folder


def follow(
    job: Job, folder: Path, listen: bool, commands: list[list[str]]
) -> subprocess.Popen[str]:
    words = [str(folder), "listen" if listen else "", json.dumps(commands)]
    return subprocess.Popen(
        [sys.executable, "-c", FOLLOW, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=job.environment,
    )


def tasks(folder: Path, size: int) -> list[list[str]]:
    return [[*TASK, str(folder), str(rank)] for rank in range(size)]


# Says that it is up, and ends when it is told to.
WAITER = (
    "import pathlib, time\npathlib.Path('up').touch()\n"
    "while not pathlib.Path('go').exists(): time.sleep(0.05)"
)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.05)


RAISES = """
import os, time
if os.environ["OWN"] == "1":
    raise ValueError("bad batch")
time.sleep(0.3)
raise RuntimeError("PeerLostError: rank 1 died")
"""


def test_the_outcome_has_the_error_that_came_first(job: Job, tmp_path: Path) -> None:
    folder = job_folder(tmp_path, RAISES, 2, listen=True, environments=[{"OWN": "0"}, {"OWN": "1"}])
    with follow(job, folder, True, tasks(folder, 2)) as launcher:
        output, errors = launcher.communicate(timeout=LIMIT)
    assert output.startswith("FirstError 1 ValueError: bad batch\n"), errors


@pytest.mark.parametrize("listen", [False, True])
def test_ctrl_z_stops_the_launcher_and_leaves_the_ranks_running(
    job: Job, tmp_path: Path, listen: bool
) -> None:
    folder = job_folder(tmp_path, WAITER, 1, listen)
    with follow(job, folder, listen, tasks(folder, 1)) as launcher:
        wait_for(folder / "up")
        launcher.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(launcher.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        (folder / "go").touch()
        launcher.send_signal(signal.SIGCONT)
        output, errors = launcher.communicate(timeout=LIMIT)
    assert output.endswith("Outcome(failure=None, signal_number=None)\n"), errors
    told = [record.event for record in Log(folder).read()[0] if record.rank == -1]
    assert told == (["pause", "resume"] if listen else [])


@pytest.mark.parametrize(
    ("told", "code"), [([], -signal.SIGTERM), (["pause"], 0), (["pause", "resume"], -15)]
)
def test_tasks_end_when_the_launcher_is_silent_unless_it_has_said_that_it_pauses(
    job: Job, tmp_path: Path, told: list[str], code: int
) -> None:
    folder = job_folder(tmp_path, "import time; time.sleep(6)", 1, listen=True)
    for event in told:
        Log(folder).append(Record(event))
    impatient = (
        "import sys\nfrom sirtaki.launch.scheduled import task\n"
        "task._LAUNCHER_SILENCE_SECONDS = 1\ntask.main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", impatient, str(folder), "0"]
    subprocess.run(words, env=job.environment, timeout=LIMIT, check=True)
    assert [r.code for r in Log(folder).read()[0] if r.event == "exited"] == [code]


@pytest.mark.parametrize("listen", [False, True])
def test_a_starter_that_stays_when_all_ranks_have_ended_is_killed_and_no_failure(
    job: Job, tmp_path: Path, listen: bool
) -> None:
    folder = job_folder(tmp_path, "pass", 2, listen)
    stay = ["sh", "-c", '"$@"; exec sleep 600', "sh"]
    commands = [[*stay, *task] for task in tasks(folder, 2)]
    with follow(job, folder, listen, commands) as launcher:
        output, errors = launcher.communicate(timeout=LIMIT)
    assert output == "Outcome(failure=None, signal_number=None)\n", errors
    assert "but sh has not: killing it" in errors


def test_a_starter_whose_output_nobody_reads_yet_is_not_killed(job: Job, tmp_path: Path) -> None:
    lines = 20000
    folder = job_folder(tmp_path, f"for i in range({lines}): print('x' * 99)", 1, listen=False)
    with follow(job, folder, False, tasks(folder, 1)) as launcher:
        assert launcher.stdout is not None
        time.sleep(4)
        output, errors = launcher.communicate(timeout=LIMIT)
    assert output.count("[0]<stdout>:" + "x" * 99) == lines, errors


def test_why_a_rank_cannot_start_is_said_with_its_exit_code(job: Job, tmp_path: Path) -> None:
    folder = job_folder(tmp_path, "pass", 1, listen=False)
    told = json.loads((folder / JOB).read_text())
    (folder / JOB).write_text(json.dumps({**told, "command": ["no-such-program"]}))
    with follow(job, folder, False, tasks(folder, 1)) as launcher:
        _, errors = launcher.communicate(timeout=LIMIT)
    assert errors.startswith("rank 0 on ")
    assert "command not found: 'no-such-program'" in errors
    assert launcher.returncode == 127


@pytest.mark.parametrize("listen", [False, True])
def test_a_living_launcher_keeps_its_folder_fresh(job: Job, tmp_path: Path, listen: bool) -> None:
    folder = job_folder(tmp_path, WAITER, 1, listen)
    with follow(job, folder, listen, tasks(folder, 1)) as launcher:
        wait_for(folder / "up")
        os.utime(folder / "log", (0, 0))
        deadline = time.monotonic() + LIMIT
        while (folder / "log").stat().st_mtime == 0:
            assert time.monotonic() < deadline, "nobody touches the log"
            time.sleep(0.1)
        (folder / "go").touch()
        launcher.communicate(timeout=LIMIT)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_the_launcher_reaches_ranks_that_listen(
    job: Job, tmp_path: Path, number: signal.Signals
) -> None:
    code = (
        f"import pathlib, signal\nsignal.signal({int(number)}, lambda *_: "
        f"pathlib.Path('go').touch())\n{WAITER}"
    )
    folder = job_folder(tmp_path, code, 1, listen=True)
    with follow(job, folder, True, tasks(folder, 1)) as launcher:
        wait_for(folder / "up")
        launcher.send_signal(number)
        output, errors = launcher.communicate(timeout=LIMIT)
    assert output.endswith("Outcome(failure=None, signal_number=None)\n"), errors
    assert f"{number.name} received: passed on to the workers." in errors


def test_a_signal_from_before_its_start_is_not_for_a_rank(job: Job, tmp_path: Path) -> None:
    folder = job_folder(tmp_path, "import time; time.sleep(3)", 1, listen=True)
    Log(folder).append(Record("signal", code=signal.SIGUSR1))
    done = subprocess.run(tasks(folder, 1)[0], env=job.environment, timeout=LIMIT, check=False)
    assert done.returncode == 0


def test_ctrl_c_interrupts_ranks_that_listen(job: Job, tmp_path: Path) -> None:
    code = (
        "import pathlib, time\ntry:\n    pathlib.Path('up').touch()\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    pathlib.Path('saved').touch()"
    )
    folder = job_folder(tmp_path, code, 1, listen=True)
    with follow(job, folder, True, tasks(folder, 1)) as launcher:
        wait_for(folder / "up")
        launcher.send_signal(signal.SIGINT)
        output, errors = launcher.communicate(timeout=LIMIT)
    assert output.endswith("Outcome(failure=None, signal_number=2)\n"), errors
    assert (folder / "saved").exists()
