"""Collectives among virtual hosts, through the launcher."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests import needs
from tests.hosts.bed import SSH_PORT, Bed, signal_to
from tests.hosts.jobs import RUN, run, running

SCRIPT = str(Path(__file__).with_name("train.py"))
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/pytorch_cifar10.py"
TRAIN = (sys.executable, SCRIPT)
FOR_EVER = (*TRAIN, "--for-ever")
LIMIT = 150.0


def places(output: str) -> list[tuple[int, ...]]:
    """Rank, local rank, local size and cross rank of all that have come to the end.

    And whether they know the hosts to have equally many.
    """
    words = [line.split(":", 1)[1].split() for line in output.splitlines() if ":done " in line]
    return sorted(tuple(map(int, line[1:])) for line in words)


def test_three_hosts_of_two_ranks_agree_on_every_result(bed: Bed) -> None:
    done = run(bed, *TRAIN, slots=2)
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == [(r, r % 2, 2, r // 2, 1) for r in range(6)]


def test_uneven_hosts_agree_on_every_result(bed: Bed) -> None:
    hosts = "node3:2,node5:1"
    done = bed.hosts[0].run(*RUN, "-np", "3", "-H", hosts, "-p", str(SSH_PORT), *TRAIN)
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == [(0, 0, 2, 0, 0), (1, 1, 2, 0, 0), (2, 0, 1, 1, 0)]


def test_ranks_in_containers_on_several_hosts_agree_on_every_result(bed: Bed) -> None:
    hosts = ",".join(f"{host.name}:2" for host in bed.hosts[:2])
    contained = ("unshare", "-U", "--map-current-user", "--pid", "--fork")
    command = (*RUN, "-np", "4", "-H", hosts, "-p", str(SSH_PORT), *contained, *TRAIN)
    done = bed.hosts[0].run(*command)
    assert done.returncode == 0, done.stderr
    assert len(places(done.stdout)) == 4


def test_encrypted_hosts_on_ipv6_agree_on_every_result(bed: Bed) -> None:
    hosts = ",".join(f"[{host.address6}]:1" for host in bed.hosts)
    done = bed.hosts[0].run(*RUN, "-np", "3", "-H", hosts, "-p", str(SSH_PORT), "--tls", *TRAIN)
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == [(0, 0, 1, 0, 1), (1, 0, 1, 1, 1), (2, 0, 1, 2, 1)]


@pytest.mark.slow
def test_three_hosts_train_the_cifar_10_example(bed: Bed) -> None:
    needs.package("torch")
    done = run(bed, sys.executable, str(EXAMPLE), "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"^\[0\]<stdout>:   3 +\d+\.\d\d +1\.00 +1?\d\d\.\d\d%", done.stdout, re.MULTILINE
    )


@pytest.mark.slow
def test_a_host_that_stops_for_three_seconds_is_not_lost(bed: Bed) -> None:
    with running(bed, *FOR_EVER) as process:
        bed.hosts[1].stop()
        time.sleep(3)
        bed.hosts[1].resume()
        time.sleep(3)
        signal_to(process, signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT)
        # Once they are told to end, one rank may see another go.
        before, told, _ = output.partition("SIGINT received")
        assert told
        assert "lost:" not in before


def test_a_killed_rank_ends_the_training_with_its_host_named(bed: Bed) -> None:
    with running(bed, *FOR_EVER) as process:
        found = bed.hosts[1].processes().items()
        (rank,) = [
            p for p, command in found if SCRIPT in command and "sirtaki.launch" not in command
        ]
        os.kill(rank, signal.SIGKILL)
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 1
        assert "Process name: rank 1 on 192.168.11.5\nExit code: 137" in output


def test_a_cut_link_ends_the_training_with_the_host_named(bed: Bed) -> None:
    with running(bed, *FOR_EVER) as process:
        bed.hosts[2].cut_off()
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 1
        assert "192.168.11.6" in output
        bed.wait_until_idle()


@pytest.mark.slow
def test_hosts_end_with_the_bits_of_one_rank(bed: Bed) -> None:
    program = Path(__file__).resolve().parents[1] / "faults/elastic/reproducible.py"
    env = {"MODEL": "norm", "STEPS": "8"}
    alone = bed.hosts[0].run(sys.executable, str(program), env={**os.environ, **env})
    done = run(bed, sys.executable, str(program), slots=2, env=env)
    assert done.returncode == 0, done.stderr
    (expected,) = re.findall(r"^hash (\w+)", alone.stdout, re.MULTILINE)
    assert re.findall(r"<stdout>:hash (\w+)", done.stdout) == [expected] * 6
