"""Jobs in an allocation of two hosts, both of them this machine, with a stand-in for srun."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.single.launching import GRACE, LIMIT, Job, python

# Starts the tasks of a step with the variables that tell them apart; $BEFORE is done first in the
# folder of the job, $AFTER when all have ended: `wait -f`, as a task that is stopped has not ended.
SRUN = """#!/bin/bash
set -m  # else tasks would ignore SIGINT
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && count=${1#*=}; shift; done
(cd "${@: -1}" && eval "$BEFORE")
worst=0
for ((task = 0; task < count; task++)); do
  SLURM_STEP_ID=0 SLURM_PROCID=$task SLURM_STEP_NUM_TASKS=$count "$@" &
done
for each in $(jobs -p); do wait -f $each || worst=$?; done
eval "$AFTER"
exit $worst
"""
# Says that it is up, and ends when it is told to.
WAITER = (
    "import os, pathlib, time\npathlib.Path('up' + os.environ['HOROVOD_RANK']).touch()\n"
    "while not pathlib.Path('go').exists(): time.sleep(0.05)\n"
)


def said(launcher: subprocess.Popen[str]) -> str:
    """All that a launcher prints until it ends, but what only a busy machine makes it say."""
    text = launcher.communicate(timeout=LIMIT)[0]
    return re.sub(r"^waiting for hosts? .*\n", "", text, flags=re.MULTILINE)


class Allocation:
    """A job of Slurm, as its variables tell it, in a folder of its own."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.folder = folder
        self.shared = folder / "shared"
        (folder / "bin").mkdir()
        (folder / "bin" / "srun").write_text(SRUN)
        (folder / "bin" / "srun").chmod(0o755)
        job.environment |= {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "SIRTAKI_SHARED_DIR": str(self.shared),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": f"localhost,{socket.gethostname()}",
            "SLURM_TASKS_PER_NODE": "2,1",
        }

    def start(self, *arguments: str, prelude: str = "pass", **extra: str) -> subprocess.Popen[str]:
        """Start a launcher; its output is one pipe. prelude: runs in it first."""
        code = f"import sys; {prelude}; from sirtaki.launch.cli import main; sys.exit(main())"
        return subprocess.Popen(
            [sys.executable, "-c", code, "run", *GRACE, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**self.job.environment, **extra},
        )

    def run(self, *arguments: str, prelude: str = "pass", **extra: str) -> tuple[int, str]:
        """Run a launcher to its end; returns its exit code and output."""
        with self.start(*arguments, prelude=prelude, **extra) as launcher:
            text = said(launcher)
        self.job.wait_until_gone()
        assert list(self.shared.iterdir()) == []
        return launcher.returncode, text

    def wait_for(self, *names: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < deadline, f"{names} do not come"
            time.sleep(0.02)


@pytest.fixture
def allocation(job: Job, tmp_path: Path) -> Allocation:
    return Allocation(job, tmp_path)


UP = ("up0", "up1", "up2")


def test_ranks_have_their_places_and_a_tasks_variables(allocation: Allocation) -> None:
    names = "('RANK', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE')"
    code = (
        f"import os; print(*(os.environ['HOROVOD_' + n] for n in {names}), "
        "*(os.environ['SLURM_' + n] for n in ('PROCID', 'LOCALID', 'NTASKS')))"
    )
    status, text = allocation.run(*python(code))
    assert status == 0, text
    assert sorted(text.splitlines()) == [
        "[0]<stdout>:0 0 2 0 2 0 0 3",
        "[1]<stdout>:1 1 2 0 1 1 1 3",
        "[2]<stdout>:2 0 1 1 2 2 0 3",
    ]


def test_nothing_lies_on_the_shared_disk_once_all_agents_have_come(
    allocation: Allocation,
) -> None:
    code = "import os; print(os.listdir(os.environ['SIRTAKI_SHARED_DIR']))"
    _, text = allocation.run(*python(code))
    assert sorted(text.splitlines()) == [f"[{rank}]<stdout>:[]" for rank in range(3)]


def test_what_may_be_secret_reaches_ranks_and_no_process_of_the_scheduler(
    allocation: Allocation,
) -> None:
    look = 'env > "$OUT"'
    code = "import os; print(os.environ['GIVEN'], os.environ['MY_TOKEN'])"
    out = allocation.folder / "environ"
    status, text = allocation.run(
        *("-x", "GIVEN", *python(code)),
        GIVEN="telltale",
        MY_TOKEN="teller",
        BEFORE=look,
        OUT=str(out),
    )
    assert (status, text.count(":telltale teller\n")) == (0, 3), text
    assert "SIRTAKI_SHARED_DIR" in out.read_text()
    assert not re.search("telltale|teller", out.read_text())


@pytest.mark.slow
def test_long_output_arrives_whole_and_in_order(allocation: Allocation) -> None:
    lines = 6000  # 12 MB a rank, which is more than the buffers on their way hold
    code = f"for i in range({lines}): print(i, 'x' * 2000)"
    status, text = allocation.run(*python(code))
    assert status == 0
    for rank in range(3):
        own = [line for line in text.splitlines() if line.startswith(f"[{rank}]")]
        assert own == [f"[{rank}]<stdout>:{i} {'x' * 2000}" for i in range(lines)]


def test_ranks_of_a_host_share_out_the_cores_of_its_agent(allocation: Allocation) -> None:
    code = "import os; print(*sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    cpu = min(os.sched_getaffinity(0))
    status, text = allocation.run(*("--bind-to", f"{cpu}:{cpu}", *python(code)), OMP_NUM_THREADS="")
    assert status == 0, text
    assert text.count(f"<stdout>:{cpu} 1\n") == 3


def test_each_rank_sees_its_share_of_the_gpus_that_tasks_asked_for(
    allocation: Allocation,
) -> None:
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['SLURM_GPUS_PER_TASK'])"
    status, text = allocation.run(
        *python(code), CUDA_VISIBLE_DEVICES="4,5,6,7", SLURM_GPUS_PER_TASK="a100:2"
    )
    assert status == 0, text
    shares = ["4,5", "6,7", "4,5"]
    assert sorted(text.splitlines()) == [
        f"[{rank}]<stdout>:{share} a100:2" for rank, share in enumerate(shares)
    ]


def test_the_first_failure_ends_the_job_and_its_error_is_told(allocation: Allocation) -> None:
    code = (
        "import os, time\n"
        "if os.environ['HOROVOD_RANK'] == '2': raise ValueError('bad batch')\n"
        "time.sleep(600)"
    )
    status, text = allocation.run(*python(code))
    assert status == 1
    assert f"Process name: rank 2 on {socket.gethostname()}\nExit code: 1\n" in text
    assert "The first error is that of rank 2" in text
    assert "ValueError: bad batch" in text


def test_a_program_that_is_missing_is_named_with_its_host(allocation: Allocation) -> None:
    status, text = allocation.run("no-such-program")
    assert status == 127
    assert re.search(r"host \S+: command not found: 'no-such-program'", text)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("exit 0; ", None),
        ("kill $$", "srun ended (code "),
        ("head -c 32 /dev/zero > secret", "cannot reach the launcher. Tried 127.0.0.1:"),
        (
            """sed -i 's/"version": "[^"]*"/"version": "0.0.7"/' job.json""",
            "0.0.7 has started the job; install the same version on all hosts",
        ),
        ("rm -r $PWD", "set SIRTAKI_SHARED_DIR"),
    ],
)
def test_agents_that_do_not_come_are_told_with_the_reason(
    allocation: Allocation, before: str, said: str | None
) -> None:
    status, text = allocation.run(*python("pass"), BEFORE=before)
    if said is None:
        assert (status, text) == (0, "")
        return
    assert status == 1
    assert said in text
    assert re.search(
        r"host localhost: srun ended \(code -?\d+\) before its agent there had called the "
        r"launcher at tls:127\.0\.0\.1:\d+; what it said stands above",
        text,
    )


def test_a_starter_that_stays_when_all_has_ended_is_killed_and_no_failure(
    allocation: Allocation,
) -> None:
    prelude = "from sirtaki.launch.starters import starter; starter._ENDING_SECONDS = 0.5"
    status, text = allocation.run(*python("pass"), prelude=prelude, AFTER="exec sleep 600")
    assert (status, text) == (0, "")


def test_ctrl_z_stops_the_launcher_and_leaves_the_ranks_running(allocation: Allocation) -> None:
    with allocation.start(*python(WAITER)) as launcher:
        allocation.wait_for(*UP)
        launcher.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(launcher.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(6)  # longer than a silence that has not been announced
        (allocation.folder / "go").touch()
        launcher.send_signal(signal.SIGCONT)
        text = said(launcher)
    assert (launcher.returncode, text) == (0, "")


def test_a_job_that_a_scheduler_suspends_goes_on_afterwards(allocation: Allocation) -> None:
    with allocation.start(*python(WAITER)) as launcher:
        allocation.wait_for(*UP)
        pids = list(allocation.job.processes())
        # First for longer than anybody may be silent, then for long enough to act on that.
        for number, seconds in ((signal.SIGSTOP, 6), (signal.SIGCONT, 2)):
            for pid in pids:
                os.kill(pid, number)
            time.sleep(seconds)
        (allocation.folder / "go").touch()
        text = said(launcher)
    assert (launcher.returncode, text) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_to_the_launcher_reaches_the_ranks(
    allocation: Allocation, number: signal.Signals
) -> None:
    rank = "os.environ['HOROVOD_RANK']"
    code = (
        "import os, pathlib, signal, time\n"
        f"signal.signal({int(number)}, lambda *_: pathlib.Path('got' + {rank}).touch())\n{WAITER}"
    )
    with allocation.start(*python(code)) as launcher:
        allocation.wait_for(*UP)
        launcher.send_signal(number)
        allocation.wait_for("got0", "got1", "got2")
        (allocation.folder / "go").touch()
        text = said(launcher)
    assert launcher.returncode == 0
    assert text == f"{number.name} received: passed on to the workers.\n"


def test_ctrl_c_interrupts_the_ranks(allocation: Allocation) -> None:
    code = (
        "import os, pathlib, time\n"
        "rank = os.environ['HOROVOD_RANK']\n"
        "try:\n"
        "    pathlib.Path('up' + rank).touch()\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    pathlib.Path('saved' + rank).touch()"
    )
    with allocation.start(*python(code)) as launcher:
        allocation.wait_for(*UP)
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 128 + signal.SIGINT
    allocation.wait_for("saved0", "saved1", "saved2")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_rank_has_what_the_scheduler_sends_to_all_processes_once(
    allocation: Allocation, number: signal.Signals
) -> None:
    code = (
        "import os, signal, sys, time\n"
        "rank, got = os.environ['HOROVOD_RANK'], []\n"
        f"signal.signal({int(number)}, lambda *_: got.append(1))\n"
        "open('up' + rank, 'w').close()\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "print('got', len(got))\n"
    )
    with allocation.start(*python(code)) as launcher:
        allocation.wait_for(*UP)
        for pid, command in allocation.job.processes().items():
            if pid != launcher.pid and "srun" not in command:
                os.kill(pid, number)
        text = said(launcher)
    assert text.count("<stdout>:got 1\n") == 3, text
    if number != signal.SIGUSR1:
        assert f"was told to end by {number.name}: the job was cancelled" in text
    assert launcher.returncode == (0 if number == signal.SIGUSR1 else 1)


@pytest.mark.parametrize("victim", ["launcher", "srun", "agent"])
def test_a_death_leaves_nothing_behind(allocation: Allocation, victim: str) -> None:
    with allocation.start(*python(WAITER)) as launcher:
        allocation.wait_for(*UP)
        names = {
            "launcher": "sirtaki.launch.cli",
            "srun": "bin/srun",
            "agent": "connecting_agent.py",
        }
        found = allocation.job.processes().items()
        pids = sorted(pid for pid, command in found if names[victim] in command)
        os.kill(pids[-1] if victim == "agent" else pids[0], signal.SIGKILL)
        launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == (-signal.SIGKILL if victim == "launcher" else 1)
    allocation.job.wait_until_gone()
