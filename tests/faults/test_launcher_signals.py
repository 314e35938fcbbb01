"""Signals to the launcher reach the ranks, who may answer before anything ends them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job, python

PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
# Says which signals it gets, and remembers them.
ANSWERING = (
    "import signal, sys, time\n"
    "got = []\n"
    "def answer(number, _):\n"
    "    got.append(number)\n"
    "    print('answers', signal.Signals(number).name, flush=True)\n"
    "for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):\n"
    "    signal.signal(number, answer)\n"
)
UNTIL_SIGNALLED = "print('ready', flush=True)\nwhile not got: time.sleep(0.05)\n"
WAITING = "print('ready', flush=True)\nwhile True: time.sleep(0.1)\n"
SAVING = (
    "import time\n"
    "try:\n"
    "    print('ready', flush=True)\n"
    "    while True: time.sleep(0.1)\n"
    "except KeyboardInterrupt:\n"
    "    print('interrupted', flush=True)\n"
    "finally:\n"
    "    time.sleep(0.5)\n"
    "    print('saved', flush=True)\n"
)


def lines_until(launcher: subprocess.Popen[str], text: str, count: int) -> list[str]:
    """What the launcher prints until `count` lines contain `text`."""
    assert launcher.stdout is not None
    lines: list[str] = []
    while sum(text in line for line in lines) < count:
        line = launcher.stdout.readline()
        assert line, f"the job ended before {count} times {text!r}:\n{''.join(lines)}"
        lines.append(line)
    return lines


@pytest.mark.parametrize("number", PASSED_ON)
def test_a_signal_that_ends_nothing_reaches_every_rank_and_the_job_goes_on(
    job: Job, number: signal.Signals
) -> None:
    with job.start("-np", "2", *GRACE, *python(ANSWERING + WAITING)) as launcher:
        lines_until(launcher, "ready", 2)
        for _ in range(2):
            launcher.send_signal(number)
            lines_until(launcher, f"<stdout>:answers {number.name}", 2)
        launcher.terminate()
        launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 128 + signal.SIGTERM


def test_a_signal_passes_by_the_shell_around_a_script(job: Job) -> None:
    script = f'{sys.executable} -c "$0"; echo the shell goes on'
    wrapped = ("bash", "-c", script, ANSWERING + UNTIL_SIGNALLED)
    with job.start("-np", "1", *GRACE, *wrapped) as launcher:
        lines_until(launcher, "ready", 1)
        launcher.send_signal(signal.SIGUSR1)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert "[0]<stdout>:answers SIGUSR1\n[0]<stdout>:the shell goes on\n" in output
    assert launcher.returncode == 0


def test_a_signal_spares_the_helpers_that_a_script_has_started(job: Job) -> None:
    # As the workers of a data loader: some inherit the handlers, some are programs without any.
    helpers = (
        "import os, subprocess\n"
        "helper = subprocess.Popen(['sleep', '600'])\n"
        "fork = os.fork()\n"
        "if fork == 0:\n"
        "    while True: time.sleep(0.1)\n"
        f"{UNTIL_SIGNALLED}"
        "time.sleep(0.3)\n"
        "print('helpers:', helper.poll(), os.waitpid(fork, os.WNOHANG)[0], flush=True)\n"
    )
    with job.start("-np", "1", *GRACE, *python(ANSWERING + helpers)) as launcher:
        lines_until(launcher, "ready", 1)
        launcher.send_signal(signal.SIGUSR1)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert output.count("answers SIGUSR1") == 1
    assert "helpers: None 0" in output
    assert not job.processes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_saves_at_its_end_has_its_helpers_and_what_they_leave_ends_too(
    job: Job, number: signal.Signals
) -> None:
    code = (
        "import os, signal, subprocess, sys, time\n"
        "got = []\n"
        "for number in (signal.SIGTERM, signal.SIGINT):\n"
        "    signal.signal(number, lambda number, _: got.append(number))\n"
        "helper = subprocess.Popen(['sleep', '600'])\n"
        f"{UNTIL_SIGNALLED}"
        "time.sleep(0.3)\n"
        "print('saved with helper', helper.poll(), len(got), flush=True)\n"
    )
    wrapped = ("sh", "-c", f'{sys.executable} -c "$0"; exit $?', code)
    with job.start("-np", "2", "--termination-grace-seconds", "60", *wrapped) as launcher:
        lines_until(launcher, "ready", 2)
        launcher.send_signal(number)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert output.count("saved with helper None 1") == 2
    assert launcher.returncode == 128 + number
    assert not job.processes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_timeout_which_signals_its_child_twice_kills_nobody(
    job: Job, number: signal.Signals
) -> None:
    """`timeout` signals its child, and then the process group, in which that child is, too."""
    code = (
        "import signal, time\n"
        "got = []\n"
        f"signal.signal({int(number)}, lambda number, _: got.append(number))\n"
        f"{UNTIL_SIGNALLED}"
        "time.sleep(0.5)\n"
        "print('saved', len(got), flush=True)\n"
    )
    flags = ("-np", "1", "--termination-grace-seconds", "60")
    command = ["timeout", "600", *HOROVODRUN, *flags, *python(code)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=job.environment
    ) as launcher:
        lines_until(launcher, "ready", 1)
        launcher.send_signal(number)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert "saved 1" in output
    assert launcher.returncode == 128 + number


def test_helpers_that_handle_sigterm_do_not_keep_a_rank_that_does_not(job: Job) -> None:
    # As PyTorch's data loaders do.
    code = (
        "import os, signal, threading, time\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
        "    while True: time.sleep(0.1)\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "time.sleep(0.3)\n"
    )
    arguments = ("-np", "1", "--termination-grace-seconds", "60", *python(code + WAITING))
    with job.start(*arguments) as launcher:
        lines_until(launcher, "ready", 1)
        launcher.terminate()
        launcher.communicate(timeout=LIMIT)
    assert not job.processes()


def test_ranks_that_do_not_know_a_signal_end_by_it_and_are_named(job: Job) -> None:
    with job.start("-np", "1", *GRACE, *python("import time\n" + WAITING)) as launcher:
        lines_until(launcher, "ready", 1)
        launcher.send_signal(signal.SIGHUP)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert "SIGHUP received: passed on to the workers." in output
    assert "killed by SIGHUP" in output
    assert launcher.returncode == 1
    assert not job.processes()


def test_a_terminal_that_goes_away_ends_the_job(job: Job) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = (*HOROVODRUN, "-np", "2", *GRACE, *python("import time\n" + WAITING))
        os.execve(command[0], command, job.environment)
    seen = b""
    while seen.count(b"ready") < 2:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert not job.processes()


def test_ctrl_c_lets_every_rank_save_what_it_has(job: Job) -> None:
    with job.start("-np", "2", *python(SAVING)) as launcher:
        lines_until(launcher, "ready", 2)
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert output.count("interrupted") == 2
    assert output.count("saved") == 2
    assert launcher.returncode == 128 + signal.SIGINT


def test_a_rank_that_ends_at_once_after_ctrl_c_does_not_hurry_the_others(job: Job) -> None:
    first = "import os, sys, time\nif os.environ['HOROVOD_RANK'] == '0':\n"
    first += "    print('ready', flush=True); time.sleep(600)\n"
    with job.start("-np", "2", *python(first + SAVING)) as launcher:
        lines_until(launcher, "ready", 2)
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert "[1]<stdout>:saved\n" in output


def test_what_ctrl_c_does_not_end_gets_sigterm_after_the_grace(job: Job, tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "got = []\n"
        "def note(number, _):\n"
        "    got.append(signal.Signals(number).name)\n"
        f"    open({str(tmp_path / 'got')!r}, 'w').write(' '.join(got))\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, note)\n"
    )
    with job.start("-np", "1", *GRACE, *python(code + WAITING)) as launcher:
        lines_until(launcher, "ready", 1)
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=LIMIT)
    assert (tmp_path / "got").read_text() == "SIGINT SIGTERM"
    assert launcher.returncode == 128 + signal.SIGINT
    assert not job.processes()


def test_ctrl_c_in_a_script_that_calls_run_interrupts_the_ranks(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    code = (
        "import horovod\n"
        "def work():\n"
        "    import time\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n"
        f"        open({str(path)!r}, 'w').write('saved')\n"
        "horovod.run(work, num_proc=1)\n"
    )
    script = subprocess.Popen(
        python(code),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=job.environment,
    )
    with script:
        lines_until(script, "ready", 1)
        script.send_signal(signal.SIGINT)
        script.communicate(timeout=LIMIT)
    assert path.read_text() == "saved"
    assert not job.processes()


def test_a_signal_to_all_processes_of_a_job_does_not_end_who_watches_the_ranks(job: Job) -> None:
    with job.start("-np", "1", *GRACE, *python(ANSWERING + WAITING)) as launcher:
        lines_until(launcher, "ready", 1)
        for pid in job.processes():
            os.kill(pid, signal.SIGUSR1)
        lines_until(launcher, "answers SIGUSR1", 1)
        launcher.send_signal(signal.SIGUSR2)
        lines_until(launcher, "answers SIGUSR2", 1)
        launcher.terminate()
        launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 128 + signal.SIGTERM
