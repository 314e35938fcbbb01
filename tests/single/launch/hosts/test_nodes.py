"""Nodes that each start the same command, as pods do, make one job without ssh."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import Flags, flags_of
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.hosts.nodes import Nodes, leave_node, take_nodes
from sirtaki.launch.hosts.torch_variables import free_port
from sirtaki.rendezvous.network import interfaces
from tests.single.launching import SIRTAKI

PET = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "3",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return str(path)


def taken(*flags: str, **environ: str) -> Nodes | None:
    args = make_parser("sirtaki run").parse_args([*flags, "true"])
    found, nodes = take_nodes(flags_of(vars(args)), environ)
    assert nodes is None or found.num_proc == nodes.total * nodes.per_node
    return nodes


def test_nodes_are_those_of_flags_or_of_variables(secret: str) -> None:
    found = taken(SIRTAKI_SECRET_FILE=secret, **PET)
    assert found is not None
    assert (found.total, found.rank, found.per_node, found.port) == (2, 1, 3, 29400)
    assert found.names() == ["job-node-0-0", "job-node-0-1"]
    assert [slot.local_rank for slot in found.slots()] == [0, 1, 2, 0, 1, 2]
    index = {"JOB_COMPLETION_INDEX": "0", "MASTER_ADDR": "10.0.0.7"}
    found = taken("--nnodes", "3", "-np", "6", SIRTAKI_SECRET_FILE=secret, **index)
    assert found is not None
    assert (found.total, found.rank, found.per_node, found.port) == (3, 0, 2, 29500)
    assert found.names() == ["node-0", "node-1", "node-2"]


def test_without_nodes_this_launcher_starts_everything(secret: str) -> None:
    assert taken("-np", "2") is None
    assert taken("-np", "2", "-H", "localhost:2", SIRTAKI_SECRET_FILE=secret, **PET) is None
    flags, nodes = take_nodes(Flags(), {**PET, "PET_NNODES": "1"})
    assert (flags.num_proc, nodes) == (3, None)


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        ("--node-rank 0", {}, "--node-rank: --nnodes is missing"),
        ("--nnodes 2 -H a:2", {}, "each node starts its own ranks"),
        ("--nnodes 2", {}, "--node-rank is missing, and PET_NODE_RANK and JOB_COMPLETION_INDEX"),
        ("--nnodes 2 --node-rank 2", {}, "--node-rank 2 of --nnodes 2"),
        ("--nnodes 2 --node-rank 1", {}, "give --master-addr, or set MASTER_ADDR"),
        ("--nnodes 2 -np 3 --node-rank 1", {}, "-np 3 is not a multiple of the 2 nodes"),
        ("--nnodes 2 -np 3 --nproc-per-node 2", {}, "are 4 processes"),
        ("--nnodes 2 --nproc-per-node many", {}, "--nproc-per-node=many: expected a whole number"),
        ("--mpi", PET, "--mpi: PET_NNODES tells each node to start its own ranks"),
        ("", {**PET, "PET_NNODES": "1:4"}, "PET_NNODES=1:4: expected a whole number"),
        ("", PET, "name the file in SIRTAKI_SECRET_FILE"),
        ("", {**PET, "SIRTAKI_SECRET_FILE": "/none"}, "No such file"),
    ],
)
def test_what_cannot_be_is_refused(flags: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        taken(*flags.split(), **environ)


def test_ranks_do_not_see_the_variables_of_their_node() -> None:
    assert leave_node({**PET, "RANK": "1", "MASTER_PORT": "1", "HOME": "/"}) == {"HOME": "/"}


class Pods:
    """Launchers on this machine, each with the variables of a node."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.port = free_port()
        self.address = interfaces.candidates()[0]
        self.running: list[subprocess.Popen[str]] = []

    def start(self, node: int, program: str, *flags: str, **more: str) -> subprocess.Popen[str]:
        flags = ("--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2", *flags)
        variables = {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "SIRTAKI_SECRET_FILE": self.secret,
            "SIRTAKI_HOST_ID": f"pod {node}",
            "OF_POD": str(node),
            **more,
        }
        pod = subprocess.Popen(
            [*SIRTAKI, "run", *flags, sys.executable, "-c", program],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(pod)
        return pod

    def ended(self) -> list[tuple[int, str, str]]:
        found = []
        for pod in self.running:
            out, err = pod.communicate(timeout=60)
            found.append((pod.returncode, out, err))
        return found


@pytest.fixture
def pods(secret: str) -> Iterator[Pods]:
    made = Pods(secret)
    yield made
    for pod in made.running:
        if pod.poll() is None:
            pod.kill()
            pod.communicate()


SUM = """
import os, numpy as np, sirtaki as hvd
hvd.init()
total = hvd.allreduce(np.full(1, hvd.rank()), op=hvd.Sum)[0]
print(hvd.rank(), hvd.local_rank(), hvd.cross_rank(), os.environ["OF_POD"], total,
      os.environ["RANK"], os.environ["GROUP_RANK"], "PET_NNODES" in os.environ)
"""


@pytest.mark.job
def test_the_ranks_of_all_nodes_are_one_job(pods: Pods) -> None:
    pods.start(1, SUM)  # it may come first
    time.sleep(0.5)
    pods.start(0, SUM)
    (code, out, _), (first, printed, told) = pods.ended()
    assert (first, code) == (0, 0), told
    assert out == ""
    assert sorted(printed.splitlines()) == [
        f"[{rank}]<stdout>:{rank} {rank % 2} {rank // 2} {rank // 2} 6 {rank} {rank // 2} False"
        for rank in range(4)
    ]


FAIL = """
import sys, time, sirtaki as hvd
hvd.init()
if hvd.rank() == 3:
    sys.exit(5)
time.sleep(60)
"""


@pytest.mark.job
def test_a_rank_that_fails_ends_all_nodes_and_node_0_names_its_own(pods: Pods) -> None:
    pods.start(0, FAIL)
    pods.start(1, FAIL)
    (first, _, told), (code, _, _) = pods.ended()
    assert (first, code) == (1, 1)
    assert "Process name: rank 3 on node-1" in told
    assert "Exit code: 5" in told


WAIT = """
import time, sirtaki as hvd
hvd.init()
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.job
@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_node_that_is_lost_ends_the_others(pods: Pods, lost: int) -> None:
    both = [pods.start(node, WAIT) for node in range(2)]
    assert both[0].stdout is not None
    for _ in range(4):
        assert "up" in both[0].stdout.readline()
    both[lost].kill()
    code, _, told = pods.ended()[1 - lost]
    assert code == 1
    assert ("node-1" if lost else "the launcher of node-0 has ended") in told


@pytest.mark.job
def test_a_node_that_does_not_come_is_named(pods: Pods) -> None:
    pods.start(0, SUM, "--start-timeout", "1")
    ((code, _, told),) = pods.ended()
    assert code == 1
    assert "node-1" in told


@pytest.mark.job
def test_a_node_that_reaches_nobody_says_so(pods: Pods) -> None:
    pods.start(1, SUM, "--start-timeout", "1")
    ((code, _, told),) = pods.ended()
    assert code == 1
    assert f"{pods.address}:{pods.port}" in told
    assert f"node-1 looks for node 0 on this machine, which is --master-addr {pods.address}" in told


@pytest.mark.job
def test_a_dry_run_says_what_other_nodes_start(pods: Pods) -> None:
    pods.start(0, SUM, "--dry-run")
    ((code, printed, told),) = pods.ended()
    assert (code, told) == (0, "")
    assert "host node-0: ranks 0, 1 (this machine)" in printed
    assert "host node-1: ranks 2, 3 (by its own launcher)" in printed
