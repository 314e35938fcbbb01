"""Elastic jobs over real ssh: hosts are lost, come back, and get new processes."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.hosts.bed import Bed, signal_to
from tests.hosts.jobs import launcher, run

TRAIN = (sys.executable, str(Path(__file__).parents[1] / "faults/elastic/train.py"))
ELASTIC = ("--min-np", "1", "--blacklist-cooldown-range", "1", "2")


def test_a_process_of_another_host_is_lost_and_replaced(bed: Bed) -> None:
    done = run(bed, *ELASTIC, "-x", "FAULTS=kill:1@9", "-x", "UNTIL=3", *TRAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r":end (\d) exact 3 2", done.stdout)) == ["0", "2", "3"], done.stdout


def test_a_host_that_is_cut_off_is_lost_and_taken_back_when_it_answers_again(bed: Bed) -> None:
    command = launcher(bed, *ELASTIC, "-x", "STEPS=20", "-x", "UNTIL=9", *TRAIN)
    with bed.hosts[0].running(*command) as job:
        assert job.stdout is not None
        lines, joined = list[str](), 0
        for line in job.stdout:
            lines.append(line)
            joined += "first world" in line
            # One who is not there yet would be waited for in vain, and come to another first world.
            if "first world" in line and joined == 3:
                bed.hosts[2].cut_off()
            if "reset 0 2" in line:
                bed.hosts[2].reconnect()
            if "reset 0 3" in line:
                signal_to(job, signal.SIGTERM)
        assert job.wait(60) == 128 + signal.SIGTERM, "".join(lines)
    text = "".join(lines)
    assert re.search(r"host 192\.\S+ \(processes 2\) was lost: nothing was heard of it", text)


@pytest.mark.slow
def test_a_host_whose_agent_does_not_come_is_given_up_and_tried_again(
    bed: Bed, tmp_path: Path
) -> None:
    """Its Python may hang in a file system of the network, say."""
    python, tried = tmp_path / "python", tmp_path / "tried"
    hangs = f"if [ $(uname -n) = {bed.hosts[2].name} ] && mkdir {tried}; then exec cat; fi"
    python.write_text(f'#!/bin/sh\n{hangs} >/dev/null 2>&1\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    flags = ("--remote-python", str(python), "--start-timeout", "10", "-x", "UNTIL=3")
    done = run(bed, *ELASTIC, *flags, *TRAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r":end (\d) exact", done.stdout)) == ["0", "1", "3"], done.stdout
    lost = f"host {bed.hosts[2].address} (processes 2) was lost: no answer within 10 s"
    assert lost in done.stderr


@pytest.mark.slow
def test_a_host_of_another_version_gets_no_place(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sirtaki; sirtaki.__version__ = '0.0.7'\n")
    python = tmp_path / "python"
    other = f"[ $(uname -n) = {bed.hosts[2].name} ] && export PYTHONPATH={tmp_path}"
    python.write_text(f'#!/bin/sh\n{other}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = run(bed, *ELASTIC, "--remote-python", str(python), "-x", "STEPS=20", *TRAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r":end (\d) exact 2", done.stdout)) == ["0", "1"], done.stdout
    lost = f"host {bed.hosts[2].address} (processes 2) was lost: Sirtaki 0.0.7 is installed there"
    assert lost in done.stderr


@pytest.mark.slow
def test_the_job_ends_on_all_other_hosts_when_the_launcher_s_is_lost(
    bed: Bed, tmp_path: Path
) -> None:
    """Each says where the last checkpoint is, though its own connection is gone, too."""
    said, python = tmp_path / "errors", tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" 2>> {said}\n')
    python.chmod(0o755)
    faults = ("-x", "FAULTS=note:all@3 mark:all@5", "-x", "UNTIL=9")
    command = launcher(bed, *ELASTIC, "--remote-python", str(python), *faults, *TRAIN)
    with bed.hosts[0].running(*command) as job:
        assert job.stdout is not None
        seen = 0
        while seen < 3:
            seen += "step 5" in job.stdout.readline()
        bed.hosts[0].cut_off()
        deadline = time.monotonic() + 60
        while left := [host.processes() for host in bed.hosts[1:] if host.processes()]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
        bed.hosts[0].reconnect()
        signal_to(job, signal.SIGTERM)
        assert job.wait(60) == 128 + signal.SIGTERM
    assert said.read_text().count("the last checkpoint is /there (step 3)\n") == 2
