"""Whatever goes wrong between hosts, it is named, and nothing is left running on any of them."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki.launch.processes.frames import SILENCE_SECONDS
from tests.hosts.bed import SSH_PORT, Bed, signal_to
from tests.hosts.jobs import GRACE, RUN, SLEEP, python, run, running

LIMIT = 150.0
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
# The rank of the other host does not mind SIGTERM.
PARTLY_STUBBORN = f"""
import os
exec({SLEEP!r} if os.environ["HOROVOD_RANK"] == "0" else {STUBBORN!r})
"""


@pytest.fixture
def bed(bed: Bed) -> Bed:
    """Two hosts, which are enough where nothing is said of others."""
    two = copy.copy(bed)
    two.hosts = bed.hosts[:2]
    return two


def output_of(process: subprocess.Popen[str]) -> str:
    """What the job still prints until it ends."""
    output, _ = process.communicate(timeout=LIMIT)
    return output


def test_ctrl_c_ends_everything_everywhere(bed: Bed) -> None:
    with running(bed, *python(PARTLY_STUBBORN)) as process:
        signal_to(process, signal.SIGINT)
        assert "SIGINT received" in output_of(process)
        assert process.returncode == 130
    bed.wait_until_idle()


def test_signals_reach_the_ranks_of_all_hosts_who_may_save_something_at_ctrl_c(bed: Bed) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('answers', flush=True))\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    while True: time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(0.2)\n"
        "    print('saved', flush=True)\n"
    )
    with running(bed, "--termination-grace-seconds", "30", *python(code)) as process:
        assert process.stdout is not None
        signal_to(process, signal.SIGUSR1)
        seen = ""
        while seen.count("answers") < len(bed.hosts):
            line = process.stdout.readline()
            assert line, seen
            seen += line
        signal_to(process, signal.SIGINT)
        assert output_of(process).count("saved") == len(bed.hosts)
        assert process.returncode == 130
    bed.wait_until_idle()


def test_a_second_ctrl_c_does_not_wait_for_the_grace(bed: Bed) -> None:
    with running(bed, "--termination-grace-seconds", "500", *python(STUBBORN)) as process:
        assert process.stdout is not None
        signal_to(process, signal.SIGINT)
        assert "SIGINT received" in process.stdout.readline()
        signal_to(process, signal.SIGINT)
        output_of(process)
        assert process.returncode == 130


@pytest.mark.slow
def test_a_launcher_stopped_by_ctrl_z_finds_its_job_running(bed: Bed) -> None:
    code = "import time; print('ready', flush=True); time.sleep(9); print('still here')"
    with running(bed, *python(code)) as process:
        signal_to(process, signal.SIGTSTP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(SILENCE_SECONDS + 2)
        # The way in stops with what it leads to, and continues it.
        process.send_signal(signal.SIGCONT)
        output = output_of(process)
        assert process.returncode == 0, output
        assert output.count("still here") == 2


def test_killing_the_launcher_ends_everything_everywhere(bed: Bed) -> None:
    with running(bed, *python(PARTLY_STUBBORN)) as process:
        signal_to(process, signal.SIGKILL)
        process.wait(LIMIT)
        bed.wait_until_idle()


def test_a_launcher_killed_in_the_middle_of_a_start_leaves_nothing(bed: Bed) -> None:
    for delay in (0.1, 0.3, 0.5, 0.7):
        with bed.hosts[0].running(
            *RUN, "-np", "2", "-H", "node3,node5", "-p", str(SSH_PORT), *python(SLEEP)
        ) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(delay)
            signal_to(process, signal.SIGKILL)
        bed.wait_until_idle()


def test_a_killed_sshd_ends_the_job_and_names_the_host(bed: Bed) -> None:
    there = bed.hosts[1]
    with running(bed, *python(SLEEP)) as process:
        there.kill_sshd()
        try:
            output = output_of(process)
            assert process.returncode == 1
            assert "host 192.168.11.5 (ranks 1) was lost" in output
            bed.wait_until_idle()
        finally:
            there.start_sshd()


def test_a_cut_link_ends_the_job_and_names_the_host(bed: Bed) -> None:
    there = bed.hosts[1]
    with running(bed, *python(SLEEP)) as process:
        there.cut_off()
        output = output_of(process)
        assert process.returncode == 1
        assert "host 192.168.11.5 (ranks 1) was lost" in output
        # Still cut off: the host has noticed by itself.
        bed.wait_until_idle()


@pytest.mark.slow
def test_a_connection_that_stands_still_is_noticed_at_both_ends(bed: Bed) -> None:
    with running(bed, *python(SLEEP)) as process:
        found = bed.hosts[0].processes().items()
        (ssh,) = [pid for pid, command in found if "-- 192.168.11.5" in command]
        os.kill(ssh, signal.SIGSTOP)
        output = output_of(process)
        assert process.returncode == 1
        assert "host 192.168.11.5 (ranks 1) was lost: nothing was heard of it" in output


def test_a_killed_agent_ends_the_job_and_its_ranks(bed: Bed) -> None:
    with running(bed, *python(SLEEP)) as process:
        found = bed.hosts[1].processes().items()
        (agent,) = [pid for pid, command in found if "-m sirtaki.launch.processes.agent" in command]
        os.kill(agent, signal.SIGKILL)
        output = output_of(process)
        assert process.returncode == 1
        assert "host 192.168.11.5 (ranks 1) was lost: the connection has ended" in output


def test_a_killed_guardian_ends_the_job_and_its_ranks(bed: Bed) -> None:
    with running(bed, *python(SLEEP)) as process:
        found = bed.hosts[1].processes().items()
        (guardian,) = [pid for pid, command in found if "guardian.py" in command]
        os.kill(guardian, signal.SIGKILL)
        output = output_of(process)
        assert process.returncode == 1
        assert "host 192.168.11.5 (ranks 1) was lost" in output
        assert "watches the workers" in output


def test_a_launcher_whose_ranks_are_elsewhere_keeps_no_guardian(bed: Bed) -> None:
    here, there = bed.hosts
    ssh = ("-p", str(SSH_PORT))
    job = (*RUN, "-np", "1", "-H", f"{there.name}:1", *ssh, *GRACE, *python(SLEEP))
    with here.running(*job) as process:
        assert process.stdout is not None
        # ssh may have something to say first.
        assert any("ready" in line for line in process.stdout)
        assert not [each for each in here.processes().values() if "guardian.py" in each]


def test_a_rank_that_ends_well_without_joining_ends_the_job(bed: Bed) -> None:
    code = """
import os
import sirtaki as hvd
if os.environ["HOROVOD_RANK"] == "1":
    os._exit(0)
hvd.init()
"""
    done = run(bed, "--start-timeout", "1000", *python(code))
    assert done.returncode == 1
    assert "rank 1 ended (exit code 0) without joining the others" in done.stderr


def test_what_ranks_leave_running_ends_with_the_job(bed: Bed) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()"
    )
    assert run(bed, *python(code)).returncode == 0
    assert {host.name: host.processes() for host in bed.hosts} == {
        host.name: {} for host in bed.hosts
    }


def test_a_wrong_port_is_named_for_every_host(bed: Bed, shared_bed: Bed) -> None:
    done = run(shared_bed, "-p", "12399", "true")
    assert done.returncode == 1
    for address in ("192.168.11.5", "192.168.11.6"):
        assert f"host {address}: ssh could not connect" in done.stderr
    assert "port 12399: Connection refused" in done.stderr


def test_no_rank_starts_and_a_host_that_does_not_exist_is_named_within_the_start_timeout(
    bed: Bed, tmp_path: Path
) -> None:
    hosts = "192.168.11.3,192.168.11.5,192.168.11.99"
    arguments = ("-np", "3", "-H", hosts, "-p", str(SSH_PORT), "--start-timeout", "8", *GRACE)
    done = bed.hosts[0].run(*RUN, *arguments, "touch", str(tmp_path / "started"))
    assert done.returncode == 1
    assert not list(tmp_path.iterdir())
    assert "192.168.11.99" in done.stderr
    assert "No route to host" in done.stderr or "timed out" in done.stderr
    assert "host 192.168.11.5" not in done.stderr


def test_a_host_that_does_not_answer_is_named_within_the_start_timeout(
    bed: Bed, shared_bed: Bed
) -> None:
    bed.hosts[1].cut_off()
    done = run(shared_bed, "--start-timeout", "4", "true")
    assert done.returncode == 1
    assert "host 192.168.11.5" in done.stderr
    assert "host 192.168.11.6" not in done.stderr


def test_a_host_with_another_key_than_before_is_refused(bed: Bed, shared_bed: Bed) -> None:
    known = bed.hosts[0].folder / "user" / "known_hosts"
    before = known.read_text() if known.exists() else None
    key = (shared_bed.hosts[2].folder / "host_key.pub").read_text().split()[:2]
    known.write_text(f"[192.168.11.5]:{SSH_PORT} {' '.join(key)}\n")
    try:
        done = run(bed, "true")
    finally:
        known.unlink() if before is None else known.write_text(before)
    assert done.returncode == 1
    assert "host 192.168.11.5: ssh could not connect" in done.stderr
    assert "Host key verification failed" in done.stderr


def test_a_host_that_does_not_take_the_key_is_named(bed: Bed, tmp_path: Path) -> None:
    keys = bed.hosts[1].folder / "authorized_keys"
    allowed = keys.read_text()
    keys.write_text("")
    try:
        done = run(bed, "true")
    finally:
        keys.write_text(allowed)
    assert done.returncode == 1
    assert "host 192.168.11.5: ssh could not connect" in done.stderr
    assert "Permission denied (publickey)" in done.stderr


def test_a_python_that_is_not_there_is_named_with_the_flag_for_it(bed: Bed) -> None:
    done = run(bed, "--remote-python", "/opt/no python", "true")
    assert done.returncode == 1
    assert "host 192.168.11.5: there is no Python at /opt/no python" in done.stderr
    assert "--remote-python" in done.stderr


def test_a_python_without_sirtaki_is_named(bed: Bed) -> None:
    bare = str(Path(sys.executable).resolve())
    if subprocess.run([bare, "-I", "-c", "import sirtaki"], capture_output=True).returncode == 0:
        pytest.skip("the Python behind this one has Sirtaki too")
    done = run(bed, "--remote-python", bare, "true")
    assert done.returncode == 1
    assert f"host 192.168.11.5: Sirtaki is not installed for {bare} there" in done.stderr


def test_another_version_of_sirtaki_is_named(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sirtaki; sirtaki.__version__ = '0.0.7'\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    done = run(bed, "--remote-python", str(wrapper), "true")
    assert done.returncode == 1
    assert "host 192.168.11.5: Sirtaki 0.0.7 is installed there" in done.stderr
